"""One stream task and one batch: rows are put in order and processed one by one, and changes of state are written at the end.

Kafka Streams takes, of all partitions of a task, the one whose next record is the oldest; within a partition it goes by
offset. With
the running maximum of the timestamps of each partition as the rows' time, that is a sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from odradek.model.errors import ConfigError
from odradek.streams.processors.failures import FailedRows, RecordFailedError
from odradek.streams.processors.ports import (
    ByteStore,
    EntryProcessor,
    FallibleProcessor,
    Fields,
    InputRow,
    KeyedProcessor,
    TaskStore,
    TimedProcessor,
    UpdateRow,
    WallClockProcessor,
)
from odradek.streams.processors.state.state_bytes import state_bytes, state_value

_CLOCK: Final = b"clock"
_OWNER: Final = b"owner"
_ABSENT: Final = object()
_NO_KEY: Final = repr("")
"""Stands for a key in the names of entries where there is none."""
CLOCK_SOURCE: Final = -1
"""The source number of rows that the clock causes: they come before the rows of all sources."""


def in_order(rows: Iterable[InputRow]) -> list[InputRow]:
    """Sorts rows by offset within a partition; among partitions, the oldest next record comes first."""
    by_partition = sorted(rows, key=lambda row: row.order[1:])
    latest: dict[tuple[int, int], int] = {}
    for index, row in enumerate(by_partition):
        when, source, partition = row.order[:3]
        latest[source, partition] = when = max(when, latest.get((source, partition), when))
        if when != row.order[0]:
            by_partition[index] = row._replace(order=[when, *row.order[1:]])
    by_partition.sort(key=lambda row: row.order)
    return by_partition


class MemoryStore:
    """A store that ends with the process."""

    exceeds_memory = False

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}

    def get(self, name: bytes) -> bytes | None:
        return self.data.get(name)

    def put(self, name: bytes, data: bytes) -> None:
        self.data[name] = data

    def delete(self, name: bytes) -> None:
        self.data.pop(name, None)

    def get_all(self, names: Iterable[bytes]) -> list[bytes | None]:
        return list(map(self.data.get, names))

    def put_all(self, rows: Mapping[bytes, bytes | None]) -> None:
        for name, data in rows.items():
            if data is None:
                self.delete(name)
            else:
                self.put(name, data)

    def in_page_order(self, names: Iterable[bytes]) -> list[bytes]:
        return list(names)

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        yield from list(self.data.items())


class CachedState:
    """A batch's view of a store: each name is read once at most, and written once at most, by `flush`."""

    can_undo = False

    def __init__(self, store: TaskStore, wall_clock: int = 0, failures: FailedRows | None = None) -> None:
        self._store = store
        self.wall_clock = wall_clock
        self._failures = failures
        self._fetched: dict[bytes, bytes | None] = {}
        """The bytes of entries that `fetch` has read and nothing has asked for yet."""
        self._read: dict[bytes, Any] = {}
        self._written: set[bytes] = set()
        self._written_rows: dict[bytes, bytes | None] = {}
        clock = store.get(_CLOCK)
        self.stream_time = -1 if clock is None else int(clock)
        self._began = self.stream_time

    def get(self, name: str, key: Fields | None) -> Any:
        return self.read(_entry_name(name, key))

    def put(self, name: str, key: Fields | None, value: object) -> None:
        self.write(_entry_name(name, key), value)

    def prepare(self, names: Iterable[str], keys: Iterable[Fields]) -> None:
        names = tuple(names)
        self.fetch(_entry_name(name, key) for key in keys for name in names)

    @staticmethod
    def entry_name(name: str, key: Fields | None) -> bytes:
        """Returns the name of an entry for `read` and `write`, for callers that do both."""
        return _entry_name(name, key)

    @staticmethod
    def entry_name_of_text(name: str, text: str) -> bytes:
        """Returns the name of an entry of the key with this text, which is empty where there is no key."""
        return f"{name}/{text or _NO_KEY}".encode()

    def fetch(self, entries: Iterable[bytes]) -> None:
        """Reads entries page by page, ahead of `read` and `read_rows`, if the store exceeds memory: in the order of a batch,
        pages would be loaded many times.
        """
        store = self._store
        if store.exceeds_memory:
            known, fetched = self._read, self._fetched
            missing = dict.fromkeys(entry for entry in entries if entry not in known and entry not in fetched)
            ordered = store.in_page_order(missing)
            fetched.update(zip(ordered, store.get_all(ordered), strict=True))

    def read(self, entry: bytes) -> Any:
        stored = self._read.get(entry, _ABSENT)
        if stored is _ABSENT:
            data = self._bytes_of(entry)
            stored = self._read[entry] = None if data is None else state_value(data)
        return stored

    def write(self, entry: bytes, value: object) -> None:
        self._read[entry] = value
        self._written.add(entry)

    def read_rows(self, entries: Iterable[bytes]) -> list[bytes | None]:
        """Returns the bytes of entries, for callers that read and write many at once, and these as bytes alone."""
        entries = list(entries)
        self.fetch(entries)
        return list(map(self._bytes_of, entries)) if self._fetched else self._store.get_all(entries)

    def _bytes_of(self, entry: bytes) -> bytes | None:
        return self._fetched.pop(entry) if entry in self._fetched else self._store.get(entry)

    def write_rows(self, rows: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Stores the bytes of entries; None deletes."""
        self._written_rows.update(rows)

    def undo_by(self, undo: Callable[[], object]) -> None:
        """Registers what undoes a change: a batch that fails is not flushed."""

    def fire(self, key: Fields, time: int, timer: Callable[[], Iterable[UpdateRow]]) -> list[UpdateRow]:
        try:
            return list(timer())
        except Exception as error:
            if self._failures is None:
                raise
            raise self._failures.error_of_timer(key, time, error) from None

    def write_undone(self, entry: bytes) -> Callable[[], None]:
        """Takes back what is written there from now on."""
        value, is_written = self.read(entry), entry in self._written

        def undo() -> None:
            self._read[entry] = value
            if not is_written:
                self._written.discard(entry)

        return undo

    def flush(self) -> None:
        written = self._store.in_page_order(sorted(self._written))
        values = ((entry, self._read[entry]) for entry in written)
        self._store.put_all({entry: None if value is None else state_bytes(value) for entry, value in values})
        rows = self._written_rows
        self._store.put_all({entry: rows[entry] for entry in self._store.in_page_order(sorted(rows))})
        if self.stream_time != self._began:
            self._store.put(_CLOCK, b"%d" % self.stream_time)


def key_text(key: Fields | None) -> str:
    """Returns the text of a key in names of entries: equal keys have equal texts."""
    return "" if key is None else repr(tuple(key.values()))


def _entry_name(name: str, key: Fields | None) -> bytes:
    """Returns the name of an entry: equal keys have equal bytes."""
    return CachedState.entry_name_of_text(name, key_text(key))


def own_state(store: ByteStore, name: str, tasks: int) -> None:
    """Make sure that the state is this operator's, of as many tasks: Spark gives state by the place of an operator in the plan.

    ConfigError when it is not: the program has changed, or its `partitions`.
    """
    owner = f"{tasks} {name}".encode()
    owner_before = store.get(_OWNER)
    if owner_before is None:
        store.put(_OWNER, owner)
    elif owner_before != owner:
        before, _, operator = owner_before.decode().partition(" ")
        if operator != name:
            raise ConfigError(
                f"the checkpoint has the state of the operator {operator!r} where the program now has {name!r}: start"
                " the program that wrote it, or a new checkpoint; names that you give (name=) stay when operators are added"
            )
        raise ConfigError(
            f"partitions was {before} at the first start and is {tasks} now: keys would be in other tasks"
        )


class RowState:
    """The view that a row, or the clock, has of the state of a batch: what it changes can be taken back, at the price of
    what it changes.
    """

    can_undo = True

    def __init__(self, state: CachedState, failures: FailedRows) -> None:
        self._state = state
        self._failures = failures
        self._undos: list[Callable[[], object]] = []
        self._put: set[bytes] = set()
        self.stream_time = state.stream_time
        self.wall_clock = state.wall_clock

    def get(self, name: str, key: Fields | None) -> Any:
        return self._state.get(name, key)

    def put(self, name: str, key: Fields | None, value: object) -> None:
        entry = _entry_name(name, key)
        if entry not in self._put:
            self._put.add(entry)
            self._undos.append(self._state.write_undone(entry))
        self._state.write(entry, value)

    def prepare(self, names: Iterable[str], keys: Iterable[Fields]) -> None:
        self._state.prepare(names, keys)

    def undo_by(self, undo: Callable[[], object]) -> None:
        self._undos.append(undo)

    def undo(self) -> None:
        """The row failed: the state is as it was before it."""
        self._undo_to(0)

    def fire(self, key: Fields, time: int, timer: Callable[[], Iterable[UpdateRow]]) -> list[UpdateRow]:
        mark, put_before = len(self._undos), self._put
        self._put = set()  # what the row has put already can be taken back to what it is now
        try:
            updates = list(timer())
        except Exception as error:  # noqa: BLE001 - code of the program's, which may raise anything
            self._undo_to(mark)
            self._failures.add_timer(key, time, error)
            updates = []
        else:
            put_before |= self._put
        self._put = put_before
        return updates

    def _undo_to(self, mark: int) -> None:
        while len(self._undos) > mark:
            self._undos.pop()()


def run_batch(
    processor: KeyedProcessor,
    store: TaskStore,
    rows: Iterable[InputRow],
    wall_clock: int = 0,
    failures: FailedRows | None = None,
) -> Iterator[tuple[list[int], UpdateRow]]:
    """Yields the processor's updates, each with its order: the order of the row that caused it, and its number among the
    row's updates.

    `wall_clock`: the time of day in milliseconds. What is due then comes before the rows. `failures` defines how to handle
    rows that the program's code cannot handle, and timers. They change nothing of the state.
    """
    state = CachedState(store, wall_clock, failures)
    if isinstance(processor, WallClockProcessor):
        for number, update in enumerate(_clock_updates(processor, state, failures)):
            yield [wall_clock, CLOCK_SOURCE, 0, wall_clock, 0, number], update
    ordered = in_order(rows)
    if isinstance(processor, EntryProcessor):
        state.prepare(processor.entries, (row.key for row in ordered if row.key is not None))
    for row in ordered:
        state.stream_time = max(state.stream_time, row.timestamp)
        for number, update in enumerate(_updates_of(processor, row, state, failures)):
            yield [*row.order, number], update
    state.flush()


def _updates_of(
    processor: KeyedProcessor, row: InputRow, state: CachedState, failures: FailedRows | None
) -> Iterable[UpdateRow]:
    if failures is None:
        return processor.process(row, state)
    row_state = _row_state(processor, state, failures)
    if row_state is None:
        try:
            return list(processor.process(row, state))
        except RecordFailedError:  # of a timer
            raise
        except Exception as error:  # noqa: BLE001 - code of the program's, which may raise anything
            raise failures.error_of(row, error) from None
    try:
        return list(processor.process(row, row_state))
    except Exception as error:  # noqa: BLE001 - code of the program's, which may raise anything for one record
        row_state.undo()
        failures.add(row, error)
        return ()


def _row_state(
    processor: KeyedProcessor | WallClockProcessor, state: CachedState, failures: FailedRows | None
) -> RowState | None:
    """Returns the state of a row; None where a failure ends the query."""
    if failures is None or failures.letters is None or not isinstance(processor, FallibleProcessor):
        return None
    return RowState(state, failures)


def _clock_updates(
    processor: WallClockProcessor, state: CachedState, failures: FailedRows | None
) -> Iterator[UpdateRow]:
    clock_state = _row_state(processor, state, failures)
    if clock_state is None:
        yield from processor.wall_clock_passed(state)
        return
    yield from processor.wall_clock_passed(clock_state)
    state.stream_time = clock_state.stream_time


def pass_time(
    processor: KeyedProcessor,
    store: TaskStore,
    time_ms: int,
    order: list[int],
    failures: FailedRows | None = None,
    *,
    is_wall_clock: bool = False,
) -> Iterator[tuple[list[int], UpdateRow]]:
    """Stream time and the clock go on to `time_ms` without a record: windows close, timers come. `is_wall_clock`: the clock
    alone.
    """
    state = CachedState(store, time_ms, failures)
    updates: list[UpdateRow] = []
    if time_ms > state.stream_time and not is_wall_clock:
        state.stream_time = time_ms
        if isinstance(processor, TimedProcessor):
            row = InputRow(0, None, None, time_ms, None, order)
            updates += processor.time_passed(row, _row_state(processor, state, failures) or state)
    if isinstance(processor, WallClockProcessor):
        updates += _clock_updates(processor, state, failures)
    for number, update in enumerate(updates):
        yield [*order, number], update
    state.flush()


class ScriptStep(NamedTuple):
    """Something that a test does after the rows up to `number`: time advances to `time_ms`, or, None, a batch ends.
    `is_wall_clock`: only the clock advances, and not stream time.
    """

    number: int
    time_ms: int | None
    is_wall_clock: bool = False


def run_script(
    processor: KeyedProcessor,
    store: TaskStore,
    rows: Iterable[InputRow],
    script: Iterable[ScriptStep],
    old: tuple[int, ...] | None,
    failures: FailedRows | None = None,
) -> Iterator[tuple[list[int], UpdateRow]]:
    """Rows of a test, whose numbers are the fourth part of their order, in the batches that it asks for. `old`: as
    `latest_only` takes it; None for every update.
    """
    rest = list(rows)
    wall_clock = 0
    updates: list[tuple[list[int], UpdateRow]] = []
    for step in script:
        batch = [row for row in rest if row.order[3] <= step.number]
        updates += run_batch(processor, store, batch, wall_clock, failures)
        rest = [row for row in rest if row.order[3] > step.number]
        if step.time_ms is not None:
            order = [step.number, 0, 0, step.number, 0]
            wall_clock = step.time_ms
            updates += pass_time(
                processor, store, wall_clock, order, failures, is_wall_clock=step.is_wall_clock
            )
        else:
            yield from updates if old is None else latest_only(updates, old)
            updates = []
    updates += run_batch(processor, store, rest, wall_clock, failures)
    yield from updates if old is None else latest_only(updates, old)


def has_wall_clock(processor: KeyedProcessor) -> bool:
    """Tells whether the processor must be called even if no row comes."""
    return isinstance(processor, WallClockProcessor) and processor.has_wall_clock


def next_wall_clock(processor: KeyedProcessor, store: TaskStore) -> int | None:
    """Returns the wall-clock time of the processor's next call without a row; None: it needs none."""
    if not isinstance(processor, WallClockProcessor):
        return None
    return processor.next_wall_clock(CachedState(store))


def latest_only(
    updates: Iterable[tuple[list[int], UpdateRow]], old: tuple[int, ...]
) -> Iterator[tuple[list[int], UpdateRow]]:
    """Yields the last update of each key, as the record cache of Kafka Streams does.

    In the columns `old` it has what the first update had: the state before the batch.
    """
    last: dict[str, tuple[list[int], UpdateRow]] = {}
    first: dict[str, UpdateRow] = {}
    for order, update in updates:
        key = "" if update.key is None else repr(tuple(update.key.values()))
        first.setdefault(key, update)
        last.pop(key, None)
        last[key] = (order, update)
    for key, (order, update) in last.items():
        if old:
            values = list(update.values)
            for index in old:
                values[index] = first[key].values[index]
            update = update._replace(values=tuple(values))
        yield order, update
