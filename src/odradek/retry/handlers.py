"""The forms that a user's function, and its result, may have."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable

from odradek.retry.routing import Output


def check_handler(handler: Callable[..., object], *, is_async: bool) -> None:
    """Raises TypeError for a coroutine function where a plain one is called, and the other way round.

    Without this every record would fail, and become a dead letter.
    """
    call = handler if inspect.isroutine(handler) else getattr(handler, "__call__", handler)  # noqa: B004
    if inspect.isasyncgenfunction(call):
        raise TypeError(f"{handler_name(handler)} is an async generator: return a list of Output")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        if not is_async:
            raise TypeError(f"{handler_name(handler)} is a coroutine function: use AsyncRetryConsumer")
    elif is_async:
        raise TypeError(
            f"{handler_name(handler)} is no coroutine function: write async def, or use RetryConsumer"
        )


def handler_name(handler: Callable[..., object]) -> str:
    """Returns the handler's name, which dead letters have as their stage."""
    return str(getattr(handler, "__name__", type(handler).__name__))


def outputs_of(returned: Iterable[Output] | None) -> list[Output]:
    """Returns the handler's outputs as a list. If the handler is a generator, its errors are raised here."""
    return [] if returned is None else list(returned)


def check_outputs(outputs: Iterable[object], handler: Callable[..., object]) -> None:
    """Raises TypeError when a handler returns something else: a mistake of the program, not of a record."""
    for output in outputs:
        if not isinstance(output, Output):
            raise TypeError(
                f"{handler_name(handler)} returned {type(output).__name__}: expected None, or Output objects to be sent"
            )
