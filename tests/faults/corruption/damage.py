"""What can happen to a file, and which files a broker has: one kind of each, whatever it is for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

KINDS: Final = {
    ".log": "*/*.log",
    "first segment": "*/*.log",
    "last segment": "*/*.log",
    "end of the last segment": "*/*.log",
    "log-extents": "log-extents",
    ".index": "*/*.index",
    ".timeindex": "*/*.timeindex",
    ".txnindex": "*/*.txnindex",
    ".snapshot": "*/*.snapshot",
    "leader-epoch-checkpoint": "*/leader-epoch-checkpoint",
    "partition.metadata": "*/partition.metadata",
    "recovery-point-offset-checkpoint": "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint": "replication-offset-checkpoint",
    "log-start-offset-checkpoint": "log-start-offset-checkpoint",
    "log-start-offset-checkpoint-sums": "log-start-offset-checkpoint-sums",
    "log-start-offset": "*/log-start-offset",
    "transaction-index-sums": "*/transaction-index-sums",
    "cleaner-offset-checkpoint": "cleaner-offset-checkpoint",
    "meta.properties": "meta.properties",
    ".kafka_cleanshutdown": ".kafka_cleanshutdown",
    "a partition's directory": "*-*[0-9]",
    "registry": "../registry/*journal*",
}
_ENDS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "first segment": (0, ("delete",)),
    "last segment": (-1, ("delete",)),
    "end of the last segment": (-1, ("flip at the end",)),
}
"""Kinds that are one segment of each log, by its number, and what happens to it."""
REGISTRY: Final = "registry"
IDENTITY: Final = "meta.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    kind: str
    path: Path
    what: str

    def __str__(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}: {self.what}"


def strike(home: Path, kind: str, rng: random.Random, *, doings: tuple[str, ...] = ()) -> Damage | None:
    """Damage a file of the kind below a broker's home; None when it has none."""
    files = sorted(
        path for path in home.glob(KINDS[kind]) if path.is_dir() or path.stat().st_size or kind[0] == ".k"
    )
    if kind in _ENDS:
        number, doings = _ENDS[kind]
        logs = sorted({path.parent for path in files})
        files = [sorted(path for path in files if path.parent == log)[number] for log in logs]
    if not files:
        return None
    path = rng.choice(files)
    if path.is_dir():
        _delete_directory(path)
        return Damage(kind=kind, path=path, what="deleted, with all that was in it")
    if not path.stat().st_size:
        doings = ("delete",)
    doing = rng.choice(doings or tuple(_DOINGS))
    return Damage(kind=kind, path=path, what=_DOINGS[doing](path, rng))


def _flip(path: Path, rng: random.Random) -> str:
    data = bytearray(path.read_bytes())
    position, bit = rng.randrange(len(data)), rng.randrange(8)
    data[position] ^= 1 << bit
    _overwrite(path, position, bytes(data[position : position + 1]))
    return f"bit {bit} of byte {position} of {len(data)} flipped"


def _flip_at_the_end(path: Path, rng: random.Random) -> str:
    """Where a crash could have torn it, too."""
    data = bytearray(path.read_bytes())
    position, bit = len(data) - 1 - rng.randrange(min(40, len(data))), rng.randrange(8)
    data[position] ^= 1 << bit
    _overwrite(path, position, bytes(data[position : position + 1]))
    return f"bit {bit} of byte {position} of {len(data)} flipped"


def _cut(path: Path, rng: random.Random) -> str:
    size = path.stat().st_size
    left = rng.randrange(size)
    with path.open("r+b") as file:
        file.truncate(left)
    return f"cut from {size} bytes to {left}"


def _zero(path: Path, rng: random.Random) -> str:
    size = path.stat().st_size
    start = rng.randrange(size)
    length = rng.randint(1, min(size - start, 4096))
    _overwrite(path, start, bytes(length))
    return f"{length} bytes from {start} of {size} zeroed"


def _zero_all(path: Path, _rng: random.Random) -> str:
    size = path.stat().st_size
    _overwrite(path, 0, bytes(size))
    return f"all {size} bytes zeroed"


def _delete(path: Path, _rng: random.Random) -> str:
    path.unlink()
    return "deleted"


def _lengthen(path: Path, rng: random.Random) -> str:
    garbage = rng.randbytes(rng.randint(1, 300))
    with path.open("ab") as file:
        file.write(garbage)
    return f"{len(garbage)} bytes of garbage behind its end"


def _delete_directory(path: Path) -> None:
    for file in sorted(path.iterdir()):
        file.unlink()
    path.rmdir()


def _overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


_DOINGS: Final[dict[str, Callable[[Path, random.Random], str]]] = {
    "flip": _flip,
    "flip at the end": _flip_at_the_end,
    "cut": _cut,
    "zero": _zero,
    "zero all": _zero_all,
    "delete": _delete,
    "lengthen": _lengthen,
}
IN_PLACE: Final = ("flip", "zero")
"""What can be done to a file that a broker has open, and is rot rather than someone's hand."""
