"""What a plan knows of a program's own code: which methods it has. `processors/` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias, runtime_checkable

Fields: TypeAlias = dict[str, Any]
"""A struct: names and values."""
Initializer: TypeAlias = Callable[[], object]
"""Returns a new aggregate."""
Aggregator: TypeAlias = Callable[[Any, Any, Any], object]
"""Returns the next aggregate, of a key, a value and the aggregate before."""
Reducer: TypeAlias = Callable[[Any, Any], object]
"""Returns the next aggregate, of the aggregate before and a value."""
Merger: TypeAlias = Callable[[Any, Any, Any], object]
"""Returns one aggregate, of a key and the aggregates of two sessions, the earlier one first."""
AggregateChange: TypeAlias = Reducer | Aggregator
"""A Reducer where the first value is the first aggregate; else an Aggregator."""


@runtime_checkable
class Fold(Protocol):
    """The functions that make an aggregate. None is no aggregate."""

    def add(self, key: Fields, aggregate: object, values: Fields) -> object: ...
    def remove(self, key: Fields, aggregate: object, values: Fields) -> object: ...
    def merge(self, key: Fields, left: object, right: object) -> object: ...
    def result(self, aggregate: object) -> Fields | None: ...

    def copied(self, aggregate: object) -> object:
        """Returns a copy of an aggregate. All functions but `result` may change an aggregate in place; they get the copy."""
        ...


class RecordProcessor(Protocol):
    """A processor of the program's, with state and timers; `odradek.streams.Processor` is its base class."""

    time_to_live_ms: int | None

    def process(self, record: Any, state: Any, timers: Any) -> Iterable[Any] | None: ...
    def on_timer(self, key: Any, time: int, state: Any, timers: Any) -> Iterable[Any] | None: ...
    def on_wall_clock_timer(self, key: Any, time: int, state: Any, timers: Any) -> Iterable[Any] | None: ...
