"""A future that calls back at once.

asyncio runs the callbacks of its futures in the loop's next turn. An answer that passes several of them, from the disk to its
connection, then costs a handle and a turn for each. The callbacks of a `PromptFuture` run inside `set_result`. So the code
that sets a result must be done with its own state: a callback may come back to it before `set_result` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")


class _State(Enum):
    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_PENDING: Final = _State.PENDING
_DONE: Final = _State.DONE
_FAILED: Final = _State.FAILED
_CANCELLED: Final = _State.CANCELLED


class CancellableSource(Protocol):
    """Work that a future's result comes from, and that ends with it."""

    def cancel(self) -> object: ...


class PromptFuture(Generic[T]):
    """A result that comes later. It has the methods of `asyncio.Future` that callbacks need, and can be awaited. Used on the
    event loop only. An exception that no one retrieves is not reported.

    It is an `Awaitable` by its methods alone: with an abstract base class `isinstance` would be slow for its subclasses."""

    __slots__ = ("_callbacks", "_source", "_state", "_value")

    def __init__(self, source: CancellableSource | None = None) -> None:
        """`source` is cancelled if this future is."""
        self._state = _PENDING
        self._source = source
        # stored-error: for callbacks, and raised by `result` without this frame
        self._value: T | BaseException | None = None
        self._callbacks: list[Callable[[PromptFuture[T]], object]] | None = None

    def done(self) -> bool:
        return self._state is not _PENDING

    def cancelled(self) -> bool:
        return self._state is _CANCELLED

    def result(self) -> T:
        """Returns the result, or raises what took its place. Raises InvalidStateError while it is pending."""
        if self._state is _DONE:
            return cast(T, self._value)
        error = self._failure()
        try:
            raise error
        finally:
            del error, self  # the error's traceback holds this frame

    def exception(self) -> BaseException | None:
        """Returns the exception; None for a result. Raises CancelledError, and InvalidStateError while it is pending."""
        if self._state is _DONE:
            return None
        if self._state is _FAILED:
            return cast(BaseException, self._value)
        raise self._failure()

    def _failure(self) -> BaseException:
        if self._state is _FAILED:
            return cast(BaseException, self._value)
        return asyncio.CancelledError() if self._state is _CANCELLED else asyncio.InvalidStateError("pending")

    def set_result(self, value: T) -> None:
        self._settle(_DONE, value)

    def set_exception(self, error: BaseException) -> None:
        self._settle(_FAILED, error)

    def cancel(self) -> bool:
        """Gives the result up; returns False if it is there."""
        if self._state is not _PENDING:
            return False
        self._settle(_CANCELLED, None)
        return True

    def add_done_callback(self, callback: Callable[[PromptFuture[T]], object]) -> None:
        """Calls back with this future: once it is settled, or at once if it is. Callbacks run in the order in which they were
        added. An exception of one is reported to the loop, and the next runs."""
        if self._state is not _PENDING:
            try:
                callback(self)
            except Exception as error:  # noqa: BLE001 - the root of a callback, as in `_settle`
                _report(callback, error)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def map(self, convert: Callable[[PromptFuture[T]], U]) -> PromptFuture[U]:
        """Returns a future of `convert(self)`, which is called once this one has a result or an exception. If it raises, that
        is the outcome. A cancellation of either cancels the other."""
        target: PromptFuture[U] = PromptFuture(self)

        def settle(_: object) -> None:
            if target.done():
                return
            if self.cancelled():
                target.cancel()
                return
            try:
                converted = convert(self)
            except Exception as error:  # noqa: BLE001 - the waiter must learn of any end
                target.set_exception(error)
                return
            target.set_result(converted)

        self.add_done_callback(settle)
        return target

    def follow(self, source: asyncio.Future[T]) -> None:
        """Takes over the outcome of a future of asyncio, unless this one has an outcome by then."""
        source.add_done_callback(self._copy)

    def _copy(self, source: asyncio.Future[T]) -> None:
        if self.done():
            return
        if source.cancelled():
            self.cancel()
        elif (error := source.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(source.result())

    def as_future(self) -> asyncio.Future[T]:
        """Returns an asyncio future of the same outcome; its cancellation cancels this one."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(_: object) -> None:
            if future.done():
                return
            if self._state is _DONE:
                future.set_result(cast(T, self._value))
            elif self._state is _FAILED:
                future.set_exception(cast(BaseException, self._value))
            else:
                future.cancel()

        def cancel(_: object) -> None:
            if future.cancelled():
                self.cancel()

        self.add_done_callback(settle)
        future.add_done_callback(cancel)
        return future

    def _settle(self, state: _State, value: T | BaseException | None) -> None:
        if self._state is not _PENDING:
            raise asyncio.InvalidStateError(self._state.value)
        self._state, self._value = state, value
        callbacks, self._callbacks = self._callbacks, None
        source, self._source = self._source, None
        if state is _CANCELLED and source is not None:
            source.cancel()
        if callbacks is None:
            return
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:  # noqa: BLE001 - the root of a callback: the others must run
                _report(callback, error)

    def __await__(self) -> Generator[object, None, T]:
        try:
            if self._state is _PENDING:
                yield from self._wait()
            return self.result()
        finally:
            del self  # an error's traceback holds this frame

    def _wait(self) -> Generator[object, None, None]:
        """Waits in a task. Its cancellation cancels this future, as it does with asyncio's."""
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not settled.done():
                settled.set_result(None)

        self.add_done_callback(wake)
        try:
            yield from settled
        except asyncio.CancelledError:
            self.cancel()
            raise


def _report(callback: Callable[[PromptFuture[T]], object], error: Exception) -> None:
    asyncio.get_running_loop().call_exception_handler(
        {"message": f"a callback of a future failed: {callback!r}", "exception": error}
    )
