"""Rows in a RocksDB of this machine, through rocksdict.

One column family: rows under `d`, the store's own description under a zero byte. A batch of rows and its positions are one
write batch. The write-ahead log is off: a memtable reaches the disk whole, and holds batches in the order in which they were
written, so that what is lost in a crash is the end of them, rows and positions alike. It is read from the topic again.

While a view is built, rows are gathered and sorted, and RocksDB takes them over as files of its own. That is less work than
memtables are. A file has positions, too.
"""

from __future__ import annotations

import json
import shutil
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.telemetry import events
from odradek.views.store import SCAN_BYTES_MAX, AppliedPosition, Row, StoreError, ViewState

if TYPE_CHECKING:
    import rocksdict
else:
    rocksdict = lazy("rocksdict")

_log = events.get("views")

MARKER: Final = "odradek-view.json"
DATABASE: Final = "rocksdb"
DAMAGED: Final = "damaged"
GATHERED_FILE: Final = "gathered.sst"
GATHERED_ROWS_MIN: Final = 1_000
"""Fewer changes are written as they come."""
FORMAT: Final = 1
_STATE: Final = b"\0state"
_POSITION: Final = b"\0position"
_POSITIONS_END: Final = b"\0positioo"
_PARTITION: Final = struct.Struct(">i")
_NUMBERS: Final = struct.Struct(">qiqqq")
_ROWS: Final = b"d"
_ROWS_END: Final = b"e"
_HELD: Final = ("lock hold by current process", "While lock file", "LOCK: ")
_DAMAGE: Final = ("Corruption", "Invalid argument", "No such file")


@dataclass(frozen=True, slots=True, kw_only=True)
class RocksDBLimits:
    """The limits of one store's use of this machine."""

    block_cache_bytes: int = 32 << 20
    write_buffer_bytes: int = 32 << 20
    write_buffer_count: int = 3
    open_files_max: int = 128
    background_jobs: int = 2


DEFAULT_LIMITS: Final = RocksDBLimits()


class RocksDBStore:
    """A directory. One process has it at a time."""

    def __init__(self, directory: Path, *, topic: str, limits: RocksDBLimits = DEFAULT_LIMITS) -> None:
        """Raises StoreError when the directory cannot be used; ConfigError when it holds something else than a view of `topic`.

        What RocksDB cannot read is removed: the rows come from the topic again.
        """
        self._directory: Final = directory
        self._limits: Final = limits
        self._closing = threading.Lock()
        self._gathering = threading.Lock()
        self._gathered: dict[bytes, bytes | None] = {}
        self._gathered_bytes = 0
        self._gathered_state: ViewState | None = None
        self._prepare(topic)
        self._database: Any = self._open()
        self._stored: ViewState | None = self._read_state()

    # -- what the port asks for

    waits_for_disk: Final = True

    def state(self) -> ViewState | None:
        return self._gathered_state or self._stored

    def apply(self, changes: Mapping[bytes, bytes | None], state: ViewState) -> None:
        if not state.is_complete and (self._gathered_state is not None or len(changes) >= GATHERED_ROWS_MIN):
            self._gather(changes, state)
            return
        self._settle()
        batch = rocksdict.WriteBatch(raw_mode=True)
        delete = batch.delete
        for key, value in changes.items():
            if value is None:
                delete(_ROWS + key)
            else:
                batch[_ROWS + key] = value
        self._write(batch, state)

    def clear(self, state: ViewState) -> None:
        with self._gathering:
            self._gathered, self._gathered_bytes, self._gathered_state = {}, 0, None
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(_ROWS, _ROWS_END)
        batch.delete_range(_POSITION, _POSITIONS_END)
        self._stored = None
        self._write(batch, state)

    def get(self, key: bytes) -> bytes | None:
        self._settle()
        with self._explained("read"):
            value: bytes | None = self._database.get(_ROWS + key)
        return value

    def scan(self, start: bytes, end: bytes | None, row_count_max: int) -> list[Row]:
        self._settle()
        rows: list[Row] = []
        size_bytes = 0
        bound = _read_up_to(_ROWS_END if end is None else _ROWS + end)
        with self._explained("read"):
            items = self._database.items(from_key=_ROWS + start, read_opt=bound)
            for key, value in islice(items, row_count_max):
                rows.append((key[1:], value))
                size_bytes += len(key) - 1 + len(value)
                if size_bytes >= SCAN_BYTES_MAX:
                    break
            else:
                if len(rows) < row_count_max:
                    self._check_end(_ROWS + (rows[-1][0] + b"\0" if rows else start), bound)
        return rows

    def count(self) -> int:
        self._settle()
        bound = _read_up_to(_ROWS_END)
        count, key = 0, _ROWS
        with self._explained("read"):
            for count, key in enumerate(self._database.keys(from_key=_ROWS, read_opt=bound), 1):  # noqa: B007 - the last
                pass
            self._check_end(key + b"\0" if count else key, bound)
        return count

    def estimated_count(self) -> int:
        with self._explained("read"):
            return int(self._database.property_int_value("rocksdb.estimate-num-keys") or 0)

    def flush(self) -> None:
        self._settle()
        with self._explained("written"):
            self._database.flush()

    def close(self) -> None:
        with self._closing:
            if not isinstance(self._database, _Closed):
                self._settle()
            database, self._database = self._database, _Closed()
            if isinstance(database, _Closed):
                return
            with self._explained("written"):
                try:
                    database.flush()
                finally:
                    database.close()

    # -- the directory

    def _prepare(self, topic: str) -> None:
        marker = self._directory / MARKER
        try:
            rocksdict.__name__  # noqa: B018 - imports it
        except ImportError as error:
            raise ConfigError(
                f"a view on disk needs RocksDB ({error}): pip install 'odradek[views]'"
            ) from error
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if marker.exists():
                self._check_marker(marker.read_text(), topic)
            elif any(self._directory.iterdir()):
                raise ConfigError(
                    f"{self._directory} holds other files: give a view a directory of its own, new or empty"
                )
            else:
                marker.write_text(json.dumps({"format": FORMAT, "topic": topic}) + "\n")
            if (self._directory / DAMAGED).exists():
                self._remove("it was found damaged")
        except OSError as error:
            raise StoreError(
                f"the view in {self._directory} cannot be opened: {error.strerror or error}"
            ) from error

    def _check_marker(self, text: str, topic: str) -> None:
        try:
            owner = json.loads(text)["topic"]
        except (ValueError, KeyError, TypeError):
            owner = topic  # a crash cut it short: RocksDB's content tells which topic it is
            (self._directory / MARKER).write_text(json.dumps({"format": FORMAT, "topic": topic}) + "\n")
        if owner != topic:
            raise ConfigError(
                f"{self._directory} holds a view of {owner!r}: give the view of {topic!r} another directory"
            )

    def _open(self) -> object:
        try:
            return self._open_database()
        except Exception as error:
            reason = str(error)
            if any(sign in reason for sign in _HELD):
                raise StoreError(
                    f"the view in {self._directory} is open elsewhere: close it there, or use another directory"
                ) from error
            if not any(sign in reason for sign in _DAMAGE):
                raise StoreError(f"the view in {self._directory} cannot be opened: {reason}") from error
            self._remove(reason)
        try:
            return self._open_database()
        except Exception as error:
            raise StoreError(f"the view in {self._directory} cannot be opened: {error}") from error

    def _remove(self, reason: str) -> None:
        _log.warning("view_removed", directory=self._directory, reason=reason)
        shutil.rmtree(self._directory / DATABASE, ignore_errors=True)
        (self._directory / DAMAGED).unlink(missing_ok=True)

    def _open_database(self) -> object:
        database = rocksdict.Rdict(str(self._directory / DATABASE), self._options())
        writing = rocksdict.WriteOptions()
        writing.disable_wal = True  # type: ignore[assignment,method-assign] # a property, though its stub has a method
        database.set_write_options(writing)
        return database

    def _options(self) -> Any:
        limits = self._limits
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(limits.write_buffer_bytes)
        options.set_max_write_buffer_number(limits.write_buffer_count)
        options.set_max_background_jobs(limits.background_jobs)
        options.set_max_open_files(limits.open_files_max)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_compression_type(rocksdict.DBCompressionType.lz4())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(rocksdict.Cache(limits.block_cache_bytes))
        blocks.set_bloom_filter(10, False)
        blocks.set_cache_index_and_filter_blocks(True)
        blocks.set_pin_l0_filter_and_index_blocks_in_cache(True)
        options.set_block_based_table_factory(blocks)
        return options

    # -- rows and state

    def _check_end(self, key: bytes, bound: object) -> None:
        """Rocksdict's iterators end in silence where a block cannot be read; one that seeks tells."""
        iterator = self._database.iter(bound)
        iterator.seek(key)
        iterator.status()

    def _gather(self, changes: Mapping[bytes, bytes | None], state: ViewState) -> None:
        with self._gathering:
            self._gathered.update(changes)
            self._gathered_bytes += sum(map(len, changes)) + sum(map(len, filter(None, changes.values())))
            self._gathered_state = state
        if self._gathered_bytes >= self._limits.write_buffer_bytes:
            self._settle()

    def _settle(self) -> None:
        """Writes the gathered rows, in order, as a file of RocksDB, after the changed state of the store."""
        with self._gathering, self._explained("written"):
            state = self._gathered_state
            if state is None:
                return
            path = self._directory / DATABASE / GATHERED_FILE
            path.unlink(missing_ok=True)
            writer = rocksdict.SstFileWriter(self._options())
            writer.open(str(path))
            for key, value in sorted(self._changed_state(state).items()):
                writer[key] = value
            gathered = self._gathered
            for key in sorted(gathered):
                row = gathered[key]
                if row is None:
                    del writer[_ROWS + key]
                else:
                    writer[_ROWS + key] = row
            writer.finish()
            moving = rocksdict.IngestExternalFileOptions()
            moving.set_move_files(True)
            self._database.ingest_external_file([str(path)], moving)
            self._stored = state
            self._gathered, self._gathered_bytes, self._gathered_state = {}, 0, None

    def _changed_state(self, state: ViewState) -> dict[bytes, bytes]:
        """Returns the parts of the store's state that are not written yet."""
        stored, changed = self._stored, {}
        if stored is None or _identity(stored) != _identity(state):
            changed[_STATE] = _encode_identity(state)
        for partition, position in state.positions.items():
            if stored is None or stored.positions.get(partition) != position:
                changed[_POSITION + _PARTITION.pack(partition)] = _encode_position(position)
        return changed

    def _write(self, batch: Any, state: ViewState) -> None:
        for key, value in self._changed_state(state).items():
            batch[key] = value
        with self._explained("written"):
            self._database.write(batch)
        self._stored = state

    def _read_state(self) -> ViewState | None:
        with self._explained("read"):
            text = self._database.get(_STATE)
            if text is None:
                return None
            bound = _read_up_to(_POSITIONS_END)
            items = list(self._database.items(from_key=_POSITION, read_opt=bound))
            self._check_end(items[-1][0] + b"\0" if items else _POSITION, bound)
        try:
            return _decode_state(text, items)
        except (ValueError, KeyError, struct.error):
            return None  # of another version: built again

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """RocksDB's errors as one line."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            reason = str(error)
            if "closed" in reason:
                raise StoreError("the view is closed") from error
            if any(sign in reason for sign in _DAMAGE):
                self._note_damage()
                advice = "open it again: it is built again from the topic"
            else:
                advice = "repair that, then open it again: it continues where it was"
            raise StoreError(f"the view in {self._directory} cannot be {what}: {reason}; {advice}") from error

    def _note_damage(self) -> None:
        try:
            (self._directory / DAMAGED).touch()
        except OSError as error:
            _log.warning("view_damage_not_noted", directory=self._directory, reason=error)


class _Closed:
    """Replaces the database of a closed view."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        raise StoreError("the view is closed")


def _read_up_to(end: bytes) -> object:
    """Returns options for an iterator that ends before `end`. It uses their memory: they must live as long as it does."""
    bound = rocksdict.ReadOptions()
    bound.set_iterate_upper_bound(end)
    return bound


def _identity(state: ViewState) -> tuple[object, ...]:
    return state.topic, state.topic_id, state.key_format, state.is_complete


def _encode_identity(state: ViewState) -> bytes:
    identity = {
        "format": FORMAT,
        "topic": state.topic,
        "topic_id": str(state.topic_id),
        "key_format": state.key_format,
        "is_complete": state.is_complete,
    }
    return json.dumps(identity).encode()


def _encode_position(position: AppliedPosition) -> bytes:
    return _NUMBERS.pack(
        position.offset,
        position.leader_epoch,
        position.record_timestamp_ms,
        position.applied_at_ms,
        position.complete_at_ms,
    )


def _decode_state(text: bytes, items: list[Row]) -> ViewState | None:
    identity = json.loads(text)
    if identity["format"] != FORMAT:
        return None
    positions = {}
    for key, numbers in items:
        offset, epoch, record_timestamp_ms, applied_at_ms, complete_at_ms = _NUMBERS.unpack(numbers)
        positions[_PARTITION.unpack(key[len(_POSITION) :])[0]] = AppliedPosition(
            offset=offset,
            leader_epoch=epoch,
            record_timestamp_ms=record_timestamp_ms,
            applied_at_ms=applied_at_ms,
            complete_at_ms=complete_at_ms,
        )
    return ViewState(
        topic=identity["topic"],
        topic_id=UUID(identity["topic_id"]),
        key_format=identity["key_format"],
        is_complete=identity["is_complete"],
        positions=positions,
    )
