"""What users ask: to hand a job in, to take one back, to know."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from interlane.engines.local.attempts import Attempts
from interlane.live.driver.batch import Batch
from interlane.live.driver.errors import AlreadyEnded, KeyReused, NoSuchJob, VersionDiffers
from interlane.live.driver.inbox import Ask, Cancel, FromUser, Item, Key, Submit
from interlane.live.driver.state import Books, job_of
from interlane.live.questions.estimates import asked_of
from interlane.live.store.record import Kind, Record, State
from interlane.live.store.store import Store, UsedKey
from interlane.model import Cancelled, InterlaneError, JobId, Submitted

KnownKeys = dict[tuple[str, str], UsedKey]
"""Keys that were used before, by user and text."""

_MADE: Final = (
    *("serial", "name", "user", "queue", "submitted_s"),
    *("guess_s", "low_s", "high_s"),
)
"""The fields of a new record that the log must tell, beside the job."""


@dataclass(frozen=True, slots=True)
class Users:
    """Takes in what users ask."""

    store: Store
    attempts: Attempts

    def known_keys(self, items: Iterable[Item]) -> KnownKeys:
        """Return the used keys among those that came in."""
        wanted = {
            (item.user, item.key.text)
            for item in items
            if isinstance(item, Submit) and item.key is not None
        }
        return {(used.user, used.key): used for used in self.store.used_keys(wanted)}

    def take_in(self, item: FromUser, batch: Batch, known: KnownKeys) -> None:
        """Note what is asked; the answer comes once it is stored."""
        match item:
            case Submit():
                self._submit(item, batch, known)
            case Cancel():
                self._cancel(item, batch)
            case Ask():
                _answer(item, batch)

    def _submit(self, item: Submit, batch: Batch, known: KnownKeys) -> None:
        key = item.key
        if key is not None and (used := known.get((item.user, key.text))) is not None:
            self._answer_again(item, key, used, batch)
            return
        record = _new_record(item, batch)
        made = {name: getattr(record, name) for name in _MADE} | {"spec": record.job.document}
        batch.write(Kind.SUBMITTED, record.id, made)
        batch.learn(Submitted(job_of(record, batch.books.cluster)))
        if key is not None:
            used = UsedKey(item.user, key.text, key.digest, record.id)
            known[item.user, key.text] = used
            batch.keys.append(used)
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _answer_again(self, item: Submit, key: Key, used: UsedKey, batch: Batch) -> None:
        """Answer a submission that came before with the job that it made."""
        if used.digest != key.digest:
            item.answer.set_exception(
                KeyReused(
                    f"Idempotency-Key {key.text!r} was used for job {used.job_id} with other "
                    "contents; use a new key."
                )
            )
            return

        def answer() -> None:
            record = batch.books.jobs.get(used.job_id) or self.store.job(used.job_id)
            assert record is not None
            item.answer.set_result(record)

        batch.afterwards.append(answer)

    def _cancel(self, item: Cancel, batch: Batch) -> None:
        try:
            record = self._cancellable(item, batch.books)
        except InterlaneError as error:
            batch.afterwards.append(partial(item.answer.set_exception, error))
            return
        if record.state is State.QUEUED:
            batch.learn(Cancelled(record.id))
            batch.end(Kind.CANCELLED, record, State.CANCELLED, cancelled_by=item.by)
        elif record.cancelled_by is None:
            change = {"state": State.STOPPING, "cancelled_by": item.by}
            batch.write(Kind.CANCEL_ASKED, record.id, change)
            batch.afterwards.append(partial(self.attempts.stop, record))
        batch.afterwards.append(lambda: item.answer.set_result(batch.record(record.id)))

    def _cancellable(self, item: Cancel, books: Books) -> Record:
        """Return the job that is to be cancelled, or raise why it cannot be."""
        record = books.jobs.get(item.job_id) or self.store.job(item.job_id)
        if record is None:
            raise NoSuchJob(f"There is no job {item.job_id!r}; 'interlane ps -A' lists all.")
        if not record.is_open:  # perhaps only since a moment ago, in the same batch
            raise AlreadyEnded(f"Job {item.job_id} has {record.state} already.")
        if item.version is not None and item.version != record.version:
            raise VersionDiffers(
                f"Job {item.job_id} is at version {record.version}, not {item.version}; "
                "look at it again."
            )
        return record


def _new_record(item: Submit, batch: Batch) -> Record:
    books = batch.books
    books.serial += 1
    job_id = JobId(f"{item.spec.name}-{books.serial}")
    known = asked_of(job_id, item.spec, item.user, batch.now_s, books.cluster)
    guess = books.guesses.guess(known)
    return Record(
        books.serial,
        job_id,
        item.spec.name,
        item.user,
        item.spec.queue,
        item.spec,
        batch.now_s,
        guess.seconds,
        guess.low_s,
        guess.high_s,
    )


def _answer(item: Ask, batch: Batch) -> None:
    try:
        item.answer.set_result(item.question(batch.books.scheduler, batch.now_s))
    except Exception as error:
        item.answer.set_exception(error)
