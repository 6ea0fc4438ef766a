"""Records as columns: the buffers that Arrow is made of, without Arrow.

An engine fills these from batches and empties them into batches; `arrow.py` alone turns them into arrays and
back. All numbers are in the machine's byte order, as Arrow has them.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol, TypeVar

from odradek.records.frame import Frame, Written
from odradek.runtime.ports import Buffer

H = TypeVar("H")

COLUMN_BYTES_MAX: Final = 0x7FFF_FFFF
"""The most bytes of one binary column: its offsets are 32 bits wide."""


class BinaryColumn(NamedTuple):
    """Byte strings, one after the other."""

    first: int
    """The index of row 0 in `offsets` and `validity`: not 0 where the column is a slice of a longer one."""
    validity: Buffer | None
    """A bit for each row, lowest first, 0 for null; None where no row is null."""
    offsets: Buffer
    """int32, one more than rows: row `i` is `data[offsets[first + i] : offsets[first + i + 1]]`."""
    data: Buffer
    null_count: int


class ListColumn(NamedTuple):
    """A column of lists: each row is a range of rows of other columns."""

    first: int
    validity: Buffer | None
    """A null list is an empty one."""
    offsets: Buffer


class Headers(NamedTuple):
    """The headers of every record."""

    lists: ListColumn
    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Records, a column for each field."""

    row_count: int
    timestamps: Buffer
    """int64."""
    keys: BinaryColumn
    values: BinaryColumn
    headers: Headers | None
    """None where no record has any."""
    offsets: Buffer = b""
    """int64; not needed to write."""
    timestamp_types: Buffer = b""
    """int32; not needed to write."""


class ColumnReader(Protocol):
    """Gathers the records of many batches in columns."""

    def read(self, data: Buffer, frame: Frame, from_offset: int) -> None:
        """Adds a batch's records whose offset is at least `from_offset`.

        Raises INVALID_RECORD as `decode` does, and OverflowError when a column would outgrow
        `COLUMN_BYTES_MAX`; after either, and after `finish`, RuntimeError. For one thread at a time.
        """

    def read_plain_batches(
        self, batches: list[tuple[H, memoryview]], index: int, from_offset: int, verify_crc: bool
    ) -> int:
        """Adds the records of whole batches, headers included, from the index on, as far as this engine has a short way
        and they are fit for it: not compressed, and nothing odd about a batch's header or, with `verify_crc`, its CRC.

        The index of the first batch that was not added: nothing has happened to it, and the long way says what is wrong, if
        anything is. Errors as in `read`.
        """

    def finish(self) -> Columns:
        """Returns all that was read. The reader must not be used afterwards."""


class ColumnWriter(Protocol):
    """Writes rows of columns as records."""

    def write(self, start: int, size_bytes_max: int) -> Written:
        """Writes as many rows from `start` on as fit in a batch of this size, at least one.

        Raises ValueError where the columns contradict themselves: offsets that fall, or are outside the data.
        """


class ColumnEngine(Protocol):
    """The part of an engine for columns."""

    def ColumnReader(self, value_bytes: int = 0) -> ColumnReader:  # noqa: N802 - a module's class
        """Returns a reader. `value_bytes` is the room to make for values at once, for callers that know about how much will
        come."""

    def ColumnWriter(self, columns: Columns) -> ColumnWriter: ...  # noqa: N802
