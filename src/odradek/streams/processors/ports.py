"""The ports of a processor: rows in, updates out, and a store of bytes that a task owns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypedDict, runtime_checkable

Fields: TypeAlias = dict[str, Any]
"""A struct: names and values. None is a null key or a null value."""
ColumnLists: TypeAlias = dict[str, list[object]]
"""The values of many structs, by field."""


class RowHeader(TypedDict):
    """A record header, as Spark's column of headers holds it."""

    key: str
    value: bytes | None


RowHeaders: TypeAlias = list[RowHeader] | None
"""The headers of a record. None: the record has no headers."""


class InputRow(NamedTuple):
    """A record on one of the inputs (`port`) of an operator. `payload` is what the operator asked for of it."""

    port: int
    key: Fields | None
    payload: Fields | None
    timestamp: int
    headers: RowHeaders
    order: list[int]
    """[when, source, partition, offset, repartitions, steps...]: rows of one source and partition come in this order, whatever
    their time. What went through more repartitions comes later.
    """


class UpdateRow(NamedTuple):
    """An update that an operator emits. `values` are its output columns."""

    key: Fields | None
    values: tuple[Any, ...]
    timestamp: int
    headers: RowHeaders = None


class ByteStore(Protocol):
    """A task's state store, from batch to batch: RocksDB under Spark, a dict in tests."""

    def get(self, name: bytes) -> bytes | None: ...
    def put(self, name: bytes, data: bytes) -> None: ...
    def delete(self, name: bytes) -> None: ...


class TaskStore(ByteStore, Protocol):
    """A task's store whose rows may be in pages, and of which memory may hold a part."""

    def get_all(self, names: Iterable[bytes]) -> list[bytes | None]:
        """Returns the data of many names, None for a name that has none."""
        ...

    def put_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        """Puts many rows, and deletes those whose data is None."""
        ...

    @property
    def exceeds_memory(self) -> bool:
        """Tells whether rows in any order may load a page many times."""
        ...

    def in_page_order(self, names: Iterable[bytes]) -> list[bytes]:
        """Returns names in an order that loads each page once. Names of one page stay in their order."""
        ...


class TaskState(Protocol):
    """State during one batch: objects by name.

    `stream_time` takes the place of Spark's watermark: it is the largest timestamp so far, -1 before the first row.
    `wall_clock` is the time of day at which the batch is run. Both are in milliseconds.

    What `get` gives is the state's own. Where `can_undo`, code of the program's may yet raise for the row, and its changes are
    taken back: by what was there before each `put`, and by `undo_by` for what is changed in place.
    """

    stream_time: int
    can_undo: bool
    wall_clock: int

    def get(self, name: str, key: Fields | None) -> Any: ...
    def put(self, name: str, key: Fields | None, value: object) -> None:
        """Stores a value; None deletes."""

    def prepare(self, names: Iterable[str], keys: Iterable[Fields]) -> None:
        """Announces that these entries of many keys will be read, so that a large state can read them page by page."""

    def undo_by(self, undo: Callable[[], object]) -> None:
        """Registers `undo`, which undoes a change made in place. The last change is undone first."""

    def fire(self, key: Fields, time: int, timer: Callable[[], Iterable[UpdateRow]]) -> Iterable[UpdateRow]:
        """Runs the program's code for the key's `time` and returns what it emits. Any record, or none, may have moved time.

        Where records that fail are left out: a timer that raises emits nothing and changes nothing.
        """
        ...


class KeyedProcessor(Protocol):
    """The logic of an operator. It keeps nothing in itself: all that stays is in the state."""

    def process(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]: ...


@runtime_checkable
class EntryProcessor(Protocol):
    """A processor that names the state it reads for a row, so that a batch can read the state page by page before its rows."""

    entries: tuple[str, ...]
    """The names of the entries of a row's key that `process` reads. It may read others."""

    def process(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]: ...


@runtime_checkable
class FallibleProcessor(Protocol):
    """A processor that runs code of the program's, which may raise for one row. Its changes of the state can be taken back.

    What others raise is an error of ours. It ends the query, since their changes cannot.
    """

    runs_user_code: bool

    def process(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]: ...


@runtime_checkable
class TimedProcessor(Protocol):
    """A processor that has something to do when time passes, without a record."""

    def time_passed(self, row: InputRow, state: TaskState) -> Iterable[UpdateRow]:
        """Handles that stream time has moved. `row` has the time; it has neither key nor payload."""
        ...


@runtime_checkable
class WallClockProcessor(Protocol):
    """A processor that may also have something to do at times of day, whether records come or not."""

    has_wall_clock: bool
    """Has it? Spark then calls it without records, too."""

    def wall_clock_passed(self, state: TaskState) -> Iterable[UpdateRow]:
        """Handles that the clock has advanced to `state.wall_clock`."""
        ...

    def next_wall_clock(self, state: TaskState) -> int | None:
        """Returns the wall-clock time of its next call, in milliseconds; None: it needs none."""
        ...
