"""Kinds of fields that users write, and what they are told of one that breaks its rule."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Final, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

NAME: Final = r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$"
"""Names become parts of paths and commands, so that little is allowed in them."""

VARIABLE: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
TEXT: Final = r"^[^\x00]*$"
ROLE: Final = r"^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"
"""Roles become parts of the names of variables."""

LABEL_KEY: Final = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?$"
LABEL_VALUE: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
"""What Kubernetes allows, except that a value is never empty."""

CALLABLE: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
MODULE: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
SHORT_MAX: Final = 200
TEXT_MAX: Final = 64 * 1024
SHOWN_MAX: Final = 80
"""Characters of a value that a sentence repeats."""

_PATTERNS: Final = {
    NAME: "it must be 1 to 63 of a-z, 0-9, ., _ and -, with a letter or digit at both ends",
    VARIABLE: "it must be 1 to 128 of A-Z, a-z, 0-9 and _, and not begin with a digit",
    TEXT: "it must not hold the character 0",
    ROLE: "it must be 1 to 31 of a-z, 0-9 and -, begin with a letter and not end with -",
    LABEL_KEY: "it must be 1 to 253 of A-Z, a-z, 0-9, ., _, / and -, with a letter or digit "
    "at both ends",
    LABEL_VALUE: "it must be 1 to 63 of A-Z, a-z, 0-9, ., _ and -, with a letter or digit at "
    "both ends",
    CALLABLE: "it must read like module:function, as in models.bert:answer",
    MODULE: "it must be the name of a module, as in models.bert",
}
"""Patterns in words."""

Amount = Annotated[str | int | float, Field(union_mode="left_to_right")]
Word = Annotated[str, Field(max_length=64, pattern=NAME)]
Variable = Annotated[str, Field(pattern=VARIABLE)]
Text = Annotated[str, Field(max_length=TEXT_MAX, pattern=TEXT)]
Line = Annotated[str, Field(min_length=1, max_length=TEXT_MAX, pattern=TEXT)]
Role = Annotated[str, Field(pattern=ROLE)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE)]


def _with_unit(said: object) -> object:
    if isinstance(said, int | float):
        rule = f"memory has a unit; write {said:g}GB if you mean gigabytes"
        raise ValueError(rule)
    return said


MemoryText = Annotated[str, BeforeValidator(_with_unit)]
"""An amount of memory, with its unit."""


def _as_text(said: object) -> object:
    if isinstance(said, int) and not isinstance(said, bool):
        return str(said)
    if said is None or isinstance(said, float | bool):
        raise ValueError(
            "variables are text, and this could be written in several ways; put it in quotes"
        )
    return said


VariableText = Annotated[
    Text, BeforeValidator(_as_text, json_schema_input_type=Annotated[Text | int, Field()])
]
"""The value of a variable; whole numbers can be written in one way only, so they will do."""


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        rule = "it must be printable: no line ends, tabs or other control characters, and no "
        raise ValueError(f"{rule}space at its ends")
    return text


Short = Annotated[str, Field(min_length=1, max_length=SHORT_MAX), AfterValidator(_printable)]
"""A name that is shown and compared, and nothing else."""


class Strict(BaseModel):
    """Knows no other fields than its own, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def merged(whole: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with a change: fields inside fields alike, null drops one."""
    made = dict(whole)
    for name, value in change.items():
        before = made.get(name)
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping):
            made[name] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            made[name] = value
    return made


def sentence(errors: Iterable[Mapping[str, Any]], model: type[BaseModel], what: str) -> str:
    """Return the error of a model that tells most as a sentence with field, value and rule."""
    # A field that is not known is likely to be one that is missing, spelt wrongly.
    error = min(errors, key=lambda one: one["type"] != "extra_forbidden")
    path: Sequence[str | int] = error["loc"]
    field = ".".join(map(str, path)) or f"the {what}"
    match error["type"]:
        case "json_invalid":
            return f"This is not JSON ({error['ctx']['error']}); send a {what} as JSON."
        case "extra_forbidden":
            return f"{field} is not a field of a {what}; {_remedy(model, path)}"
        case "missing":
            return f"{field} is missing; a {what} needs it."
        case "model_type" | "model_attributes_type":
            known = ", ".join(sorted(_inside(model, path).model_fields))
            return f"{field} is {_shown(error)}, but it must have fields: {known}."
        case _:
            return f"{field} is {_shown(error)}, but {_rule(error)}."


def _shown(error: Mapping[str, Any]) -> str:
    shown = repr(error["input"])
    return shown if len(shown) <= SHOWN_MAX else f"{shown[: SHOWN_MAX - 3]}..."


def _rule(error: Mapping[str, Any]) -> str:
    if error["type"] == "value_error":  # one of our own rules
        return str(error["ctx"]["error"])
    pattern = error.get("ctx", {}).get("pattern")
    if pattern in _PATTERNS:
        return _PATTERNS[pattern]
    rule = str(error["msg"]).partition(", unable to parse")[0]
    return re.sub(r"^\w+ should", "it must", rule)


def _remedy(model: type[BaseModel], path: Sequence[str | int]) -> str:
    """Return what could have been meant by a field that there is not."""
    *within, last = path
    known = sorted(_inside(model, within).model_fields)
    close = get_close_matches(str(last), known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}known are: {', '.join(known)}."


def _inside(model: type[BaseModel], path: Sequence[str | int]) -> type[BaseModel]:
    """Return the model of a field within a model."""
    for name in path:
        if isinstance(name, int):  # an item of a list, whose model is known already
            continue
        kind = model.model_fields[str(name)].annotation
        model = next(
            one
            for one in (kind, *get_args(kind))
            if isinstance(one, type) and issubclass(one, BaseModel)
        )
    return model
