"""The event loop of a process: uvloop's where it is installed, else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.telemetry import events

if TYPE_CHECKING:
    import uvloop
else:
    uvloop = lazy("uvloop")

T = TypeVar("T")

_log = events.get("runtime")
AUTO: Final = "auto"
ASYNCIO: Final = "asyncio"
UVLOOP: Final = "uvloop"
LOOPS: Final = (AUTO, ASYNCIO, UVLOOP)


def run_on_loop(main: Coroutine[object, None, T], choice: str = AUTO) -> T:
    """Runs a coroutine on a new event loop, like `asyncio.run`. Raises ConfigError for uvloop where it is not installed."""
    try:
        factory = loop_factory(choice)
    except BaseException:
        main.close()
        raise
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def loop_factory(choice: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns what makes the event loop; None for asyncio's own."""
    if choice == ASYNCIO:
        return None
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    except ImportError as error:  # it is not installed, or not for this machine
        if choice == AUTO:
            if not isinstance(error, ModuleNotFoundError):
                _log.warning("uvloop_not_used", reason=str(error))
            return None
        raise ConfigError(
            f"odradek.event.loop=uvloop needs the package uvloop ({error}): pip install uvloop, or set it to auto"
        ) from error
    return factory
