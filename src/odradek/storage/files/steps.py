"""Work on files that stops where something must be durable before it continues.

A journaling file system makes durable, at a sync, all that was done before it. So where many logs are made each of them goes
up to such a point before the first is synced, and the syncs of the others find little left to do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

Steps = Generator[Callable[[], None], None, T]
"""Yields what makes something durable, is resumed when that is done, and returns the outcome of the work. What the sync raises
is raised inside."""


def carry_out(steps: Steps[T]) -> T:
    """Carries out all steps at once. Blocks."""
    run = _Run(steps)
    while run.sync is not None:
        run.go_on()
    return run.result()


def carry_out_together(many: Iterable[Steps[T]]) -> list[T | Exception]:
    """Returns the outcome of each, or its error, which does not affect the others. Blocks."""
    runs = [_Run(steps) for steps in many]
    under_way = runs
    while under_way := [run for run in under_way if run.sync is not None]:
        for run in under_way:
            run.go_on()
    outcomes: list[T | Exception] = []
    for run in runs:
        try:
            outcomes.append(run.result())
        except Exception as error:  # noqa: BLE001 - the caller's
            outcomes.append(error)
    return outcomes


class _Run(Generic[T]):
    """A generator of steps, run up to where it must be synced."""

    __slots__ = ("_error", "_result", "_steps", "sync")

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._result: list[T] = []
        # stored-error: raised once, by `result`, and with its traceback
        self._error: Exception | None = None
        self.sync: Callable[[], None] | None = None
        """The next step; None at the end."""
        self._resume(lambda: next(steps))

    def go_on(self) -> None:
        assert self.sync is not None
        try:
            self.sync()
        except Exception as error:  # noqa: BLE001 - raised where the sync was wanted
            failure = error
            self._resume(lambda: self._steps.throw(failure))
        else:
            self._resume(lambda: next(self._steps))

    def _resume(self, resume: Callable[[], Callable[[], None]]) -> None:
        self.sync = None
        try:
            self.sync = resume()
        except StopIteration as end:
            self._result.append(end.value)
        except Exception as error:  # noqa: BLE001 - for `result`
            self._error = error  # stored-error: as above

    def result(self) -> T:
        if self._error is not None:
            raise self._error  # stored-error: once
        return self._result[0]
