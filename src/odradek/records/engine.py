"""Chooses the engine that does the work: the compiled one where it was built, else its plain twin.

`ODRADEK_PURE=1` in the environment forces the plain one. Callers write `engine.active.walk(...)`, so that a
test can put either in place.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Final, Protocol, TypeVar, cast

from odradek.records import _plain
from odradek.records.columns import ColumnEngine
from odradek.records.frame import Frame, ScanState, SoundRun, Walk, Written
from odradek.records.record import Record
from odradek.runtime.ports import Buffer

H = TypeVar("H", bound=tuple[int, ...])
T = TypeVar("T", bound=tuple[object, ...])


class RecordWriter(Protocol):
    """Records of one batch, one after the other, after 61 bytes that are left for the header."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def record_count(self) -> int: ...

    @property
    def base_timestamp(self) -> int: ...

    @property
    def max_timestamp(self) -> int: ...

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, Buffer | None]] = (),
    ) -> bool: ...

    def take(self) -> Written: ...


class Engine(Protocol):
    """The functions of both engines; `_plain.py` describes each."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant

    def split(self, data: memoryview, header_type: type[H]) -> tuple[list[tuple[H, memoryview]], int]: ...

    def produced(self, data: memoryview, header_type: type[H]) -> tuple[H, int, int] | None: ...

    def sound_run(
        self,
        data: memoryview,
        state: ScanState,
        last_offset_max: int,
        index_interval_bytes: int,
        recovery_point: int,
        header_type: type[H] | None,
    ) -> SoundRun: ...

    def walk(self, data: Buffer, frame: Frame) -> Walk: ...

    def decode(self, data: Buffer, frame: Frame, from_offset: int) -> list[Record]: ...

    def placed(self, records: list[Record], kind: type[T], place: tuple[object, ...]) -> list[T]: ...

    def allocate(self, size_bytes: int) -> memoryview: ...

    def murmur2(self, data: bytes) -> int: ...

    def RecordWriter(self, size_bytes_max: int) -> RecordWriter: ...  # noqa: N802 - a module's class


PLAIN: Engine = cast(Engine, _plain)
_FUNCTIONS: Final = tuple(name for name in vars(Engine) if not name.startswith("_"))
"""The names that every engine has."""


def compiled() -> Engine | None:
    """Returns the compiled engine, or None where the package was installed without a compiler, or where what was built is older
    than this file: in a source tree that was updated and not built again."""
    for part in ("", "_headers", "_placing", "_memory", "_columns", "_cleaning"):
        spec = find_spec(f"odradek.records._fast{part}")
        if spec is None or spec.origin is None or not spec.origin.endswith(tuple(EXTENSION_SUFFIXES)):
            return None
    # late-import: the engine is chosen when the process runs
    built = importlib.import_module("odradek.records._fast")
    return cast(Engine, built) if all(hasattr(built, name) for name in _FUNCTIONS) else None


def _choose() -> Engine:
    if os.environ.get("ODRADEK_PURE", "") not in ("", "0"):
        return PLAIN
    return compiled() or PLAIN


active: Engine = _choose()


def columns() -> ColumnEngine:
    """Returns the active engine's half for columns, imported on first use: only Arrow needs it."""
    name = "_plain_columns" if active is PLAIN else "_fast_columns"
    # late-import: the engine is chosen when the process runs
    return cast(ColumnEngine, importlib.import_module(f"odradek.records.{name}"))
