"""Wall clocks of brokers that jump: a few lines of C, preloaded, add what a file says. Needs a C compiler."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_SOURCE: Final = Path(__file__).with_name("clock.c")
_COMPILER: Final = "cc"


def absent() -> str | None:
    return None if shutil.which(_COMPILER) else "no C compiler for what is preloaded"


class Clocks:
    """A clock for each broker; all are right until `jump`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._library = directory / "clock.so"
        subprocess.run(
            [_COMPILER, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE), "-ldl"],
            check=True,
            capture_output=True,
        )

    def prefix(self, broker: int) -> list[str]:
        """What runs a command with the broker's clock."""
        self._set(broker, 0)
        return ["env", f"LD_PRELOAD={self._library}", f"ODRADEK_FAULTS_CLOCK={self._file(broker)}"]

    @contextmanager
    def jump(self, broker: int, seconds: int) -> Iterator[None]:
        """Ahead by so much (behind, where it is negative), for as long as the block lasts; then it jumps back."""
        self._set(broker, seconds)
        try:
            yield
        finally:
            self._set(broker, 0)

    def _file(self, broker: int) -> Path:
        return self._directory / f"clock-{broker}"

    def _set(self, broker: int, seconds: int) -> None:
        file = self._file(broker)
        file.touch()
        with file.open("r+b") as opened:  # in place: the broker has this very file mapped
            opened.write(struct.pack("=q", seconds * 1_000_000_000))
