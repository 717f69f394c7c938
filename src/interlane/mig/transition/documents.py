"""Transitions as documents: complete, so that whoever carries one out needs nothing else.

A document holds what runs now, the plan, the floors and the actions, and what was asked for
(services, offers, what each instance gives): a transition that fails half-way is planned anew
from what is really there.  Its ``id`` is a digest of all that; a journal names it.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final, TypeVar

from interlane.mig.demand import GpuOffer, Problem, Service
from interlane.mig.documents import plan_document, read_state, served_document
from interlane.mig.entries import MigFileSection
from interlane.mig.layouts import Rules
from interlane.mig.plan import GpuPlan, Instance, PartitionPlan
from interlane.mig.profiles import ProfileKind as ProfileKind
from interlane.mig.profiles import gpu_model
from interlane.mig.table import Measurement
from interlane.mig.transition.steps import Action, StepKind, Transition, TransitionStep, Verb
from interlane.model import InvalidFile, InvalidInput

Word = TypeVar("Word", StepKind, Verb)

IS: Final = "mig transition"
VERSION: Final = 1


def transition_document(way: Transition, problem: Problem) -> dict[str, Any]:
    """Return a transition as a document."""
    document: dict[str, Any] = {
        "is": IS,
        "version": VERSION,
        "kept": way.kept,
        "running": way.running,
        "borrowed": list(way.borrowed),
        "floors": dict(way.floors),
        "current": {"gpus": plan_document(way.current)},
        "target": {"gpus": plan_document(way.target)},
        "actions": [_action_document(action) for action in way.actions],
        "asked": problem_document(problem),
    }
    return {"id": digest(document), **document}


def digest(document: Mapping[str, Any]) -> str:
    """Return the name of a document: the same for the same content."""
    content = {key: value for key, value in document.items() if key not in ("id", "figures")}
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _action_document(action: Action) -> dict[str, Any]:
    return {
        "is": action.kind.value,
        "after": list(action.after),
        "steps": [_step_document(step) for step in action.steps],
    }


def _step_document(step: TransitionStep) -> dict[str, Any]:
    one = step.instance
    return {
        "verb": step.verb.value,
        "gpu": step.gpu,
        "model": step.model,
        "profile": one.profile,
        "start": one.start,
        **served_document(one),
    }


def problem_document(problem: Problem) -> dict[str, Any]:
    """Return what was asked for, as far as transitions need it."""
    return {
        "services": [
            {
                "name": one.name,
                "model": one.model,
                "rate_per_s": one.rate_per_s,
                "latency_ms": one.latency_ms,
                "min_replicas": one.min_replicas,
            }
            for one in problem.services
        ],
        "gpus": [
            {"model": one.model, "price": one.price, "limit": one.limit, "spare": one.spare}
            for one in problem.offers
        ],
        "kinds": sorted(kind.value for kind in problem.rules.kinds),
        "forbid_4g3g": problem.rules.forbid_4g3g,
        "survive_gpu_loss": problem.survive_gpu_loss,
        "pinned": plan_document(PartitionPlan(problem.pinned)),
        "serving": [
            {
                "service": service,
                "gpu": gpu,
                "profile": profile,
                "model": row.model,
                "measured_as": row.profile,
                "batch": row.batch,
                "processes": row.processes,
                "throughput_per_s": row.throughput_per_s,
                "latency_ms": row.latency_ms,
            }
            for (service, gpu, profile), row in problem.serving.items()
        ],
    }


# -- reading --------------------------------------------------------------------------


def read_transition(document: object, file: str) -> tuple[Transition, Problem, str]:
    """Read a transition, what was asked for, and its id; refuse one that was changed."""
    whole = MigFileSection(file, "the file", document)
    if whole.first(("is",)) != IS:
        raise InvalidFile(
            file, "this is no transition; make one with `interlane mig transition --save`."
        )
    if whole.whole("version") != VERSION:
        raise whole.wrong("version", f"{VERSION}, the only one that is known")
    assert isinstance(document, Mapping)
    name = whole.text("id")
    if digest(document) != name:
        raise InvalidFile(file, f"the content does not match its id {name}; make it again.")
    current = read_state(whole.first(("current",)), file)
    target = read_state(whole.first(("target",)), file)
    floors = MigFileSection(file, "floors", whole.first(("floors",)))
    asked = MigFileSection(file, "asked", whole.first(("asked",)))
    problem = read_problem(asked, file)
    actions = [_read_action(entry) for entry in whole.entries("actions")]
    for number, action in enumerate(actions):
        if any(not 0 <= other < number for other in action.after):
            raise InvalidFile(file, f"action {number + 1} waits for one that comes later.")
    named = document["floors"]
    assert isinstance(named, Mapping)
    way = Transition(
        current,
        target,
        {str(service): floors.amount(str(service)) for service in named},
        tuple(actions),
        whole.texts("borrowed"),
    )
    return way, problem, name


def _read_action(entry: MigFileSection) -> Action:
    after = entry.first(("after",))
    if not isinstance(after, list) or not all(isinstance(one, int) for one in after):
        raise entry.wrong("after", "a list of numbers")
    kind = _word(StepKind, entry, "is")
    return Action(kind, tuple(_read_step(one) for one in entry.entries("steps")), tuple(after))


def _read_step(entry: MigFileSection) -> TransitionStep:
    model, profile = entry.text("model"), entry.text("profile")
    try:
        gpu_model(model).profile(profile)
    except InvalidInput as error:
        raise entry.error(str(error)) from None
    return TransitionStep(
        _word(Verb, entry, "verb"),
        entry.text("gpu"),
        model,
        Instance(
            profile,
            entry.whole("start"),
            entry.text("service", ""),
            entry.whole("batch", 1, least=1),
            entry.whole("processes", 1, least=1),
            entry.amount("throughput_per_s", 0.0, least=0),
            entry.amount("latency_ms", 0.0, least=0),
        ),
    )


def _word(words: type[Word], entry: MigFileSection, key: str) -> Word:
    try:
        return words(entry.text(key))
    except ValueError:
        raise entry.wrong(key, f"one of {', '.join(one.value for one in words)}") from None


def read_problem(asked: MigFileSection, file: str) -> Problem:
    """Read what was asked for."""
    services = tuple(
        Service(
            one.text("name"),
            one.text("model"),
            one.amount("rate_per_s"),
            one.amount("latency_ms"),
            one.whole("min_replicas", 1, least=1),
        )
        for one in asked.entries("services")
    )
    offers = tuple(
        GpuOffer(
            one.text("model"),
            one.amount("price", 1.0),
            one.whole("limit") if "limit" in one else None,
            one.whole("spare", 0),
        )
        for one in asked.entries("gpus")
    )
    serving = {
        (one.text("service"), one.text("gpu"), one.text("profile")): Measurement(
            one.text("model"),
            one.text("gpu"),
            one.text("measured_as"),
            one.whole("batch", least=1),
            one.whole("processes", least=1),
            one.amount("throughput_per_s"),
            one.amount("latency_ms"),
        )
        for one in asked.entries("serving")
    }
    rules = Rules(
        frozenset(ProfileKind(kind) for kind in asked.texts("kinds")),
        asked.claim("forbid_4g3g"),
    )
    pinned: tuple[GpuPlan, ...] = read_state({"gpus": asked.first(("pinned",), [])}, file).gpus
    return replace(
        Problem(services, offers, MappingProxyType(serving), rules),
        pinned=pinned,
        survive_gpu_loss=asked.claim("survive_gpu_loss"),
    )
