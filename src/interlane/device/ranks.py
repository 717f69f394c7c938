"""Jobs of several ranks: they wait for each other, and must not take turns meanwhile."""

import functools
import os
import sys
from collections.abc import Callable, Mapping
from inspect import signature
from types import ModuleType
from typing import Any, Final, NoReturn
from urllib.parse import parse_qs, urlsplit

VARIABLE: Final = "WORLD_SIZE"
_NAME: Final = "init_process_group"


def ranks_in(environment: Mapping[str, str]) -> int:
    """Return how many ranks the environment tells of; 1 if it does not."""
    told = environment.get(VARIABLE, "")
    return int(told) if told.isdecimal() else 1


def watch_groups(torch: ModuleType, refuse: Callable[[int], NoReturn]) -> None:
    """Call ``refuse`` when a group of several ranks is made, however they were started.

    Ranks meet while a group is made, so that it is too late afterwards: one that was refused
    would leave the others waiting.  What does not say how many there are is asked then.
    """
    distributed = torch.distributed
    if not distributed.is_available():
        return
    core = distributed.distributed_c10d
    init = getattr(core, _NAME)

    @functools.wraps(init)
    def watched(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        told = _told(init, args, named)
        if told > 1:
            refuse(told)
        made = init(*args, **named)
        if core.get_world_size() > 1:
            refuse(core.get_world_size())
        return made

    for name, module in list(sys.modules.items()):
        # Some parts of torch have imported the function by its name.
        if name.startswith(distributed.__name__) and vars(module).get(_NAME) is init:
            setattr(module, _NAME, watched)


def _told(init: Callable[..., object], args: tuple[Any, ...], named: dict[str, Any]) -> int:
    """Return how many ranks a call tells of, by argument, address or environment."""
    try:
        told = signature(init).bind(*args, **named).arguments
    except TypeError:
        return 1  # torch says what is wrong with it
    world = told.get("world_size", -1)
    if isinstance(world, int) and world > 0:
        return world
    address = told.get("init_method") or ""
    asked = parse_qs(urlsplit(str(address)).query).get("world_size", [""])[0]
    if asked.isdecimal():
        return int(asked)
    is_by_environment = not address or str(address).startswith("env:")
    return ranks_in(os.environ) if is_by_environment and told.get("store") is None else 1
