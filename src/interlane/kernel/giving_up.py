"""The phase of giving up: a job that finds no place on an idle cluster never will."""

from interlane.kernel.questions import Questions
from interlane.kernel.state import State
from interlane.model import Action, Refusal, Refuse, Requeue, Tier


class GiveUp:
    """Refuses one head that cannot be placed although all of the cluster is idle."""

    def __init__(self, state: State, questions: Questions) -> None:
        self._state = state
        self._questions = questions

    def __call__(self, now_s: float, actions: list[Action]) -> None:
        """Refuse a head; whoever would fit if machines had not left waits for others."""
        state = self._state
        if not state.queue or state.running or not state.ledger.is_whole:
            return
        if not all(isinstance(action, Requeue) for action in actions):
            return
        if state.staging is not None and state.staging.next_s() is not None:
            return  # somebody's next stage may do
        for entry in state.queue.heads(now_s):
            if state.view.never(entry.shape) is not None:
                continue
            why = self._questions.explain(entry.job.id, now_s)
            reason = why.reason if why is not None else "The placer found no place."
            state.dequeue(entry, now_s)
            del state.entries[entry.job.id]
            refusal = Refusal(
                Tier.NEVER_FITS,
                f"It does not fit on the idle cluster: {reason}",
                "Ask for less.",
            )
            actions.append(Refuse(entry.job.id, refusal))
            return
