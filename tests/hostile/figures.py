"""What a process of ours weighs, read from /proc: memory, descriptors, threads, half-closed sockets; and its log."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Self

MEBIBYTE: Final = 1 << 20
_LOOK_SECONDS: Final = 0.1
_CLOSE_WAIT: Final = "08"
_HOLD: Final = re.compile(rb"loop[_ ]held")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one broker, or summed over several."""

    rss_bytes: int = 0
    held_bytes: int = 0
    """Resident, without what CPython's allocator keeps for later (`heap.py`); as much as `rss_bytes` where no one asked."""
    descriptors: int = 0
    threads: int = 0
    close_wait_count: int = 0
    log_bytes: int = 0

    @classmethod
    def read(cls, pid: int, port: int, log_file: Path) -> Self:
        """OSError when there is no such process."""
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        rss_bytes = _status_number(status, "VmRSS") * 1024
        return cls(
            rss_bytes=rss_bytes,
            held_bytes=rss_bytes,
            descriptors=len(os.listdir(f"/proc/{pid}/fd")),
            threads=_status_number(status, "Threads"),
            close_wait_count=_close_wait_count(port),
            log_bytes=log_file.stat().st_size if log_file.exists() else 0,
        )

    def most(self, other: Figures) -> Figures:
        """The larger of each."""
        names = [field.name for field in fields(self)]
        return Figures(**{name: max(getattr(self, name), getattr(other, name)) for name in names})


def peak_rss_bytes(pid: int) -> int:
    """Since `forget_peak`, or since the process began."""
    return _status_number(Path(f"/proc/{pid}/status").read_text(encoding="ascii"), "VmHWM") * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def process_time_s(pid: int) -> float:
    """Processor time that the process has used."""
    parts = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def loop_hold_count(log_file: Path, start_position: int = 0) -> int:
    """How many times the broker says, from this byte of its log on, that something held its event loop."""
    with log_file.open("rb") as log:
        log.seek(start_position)
        return sum(1 for line in log if _HOLD.search(line))


def _status_number(status: str, name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
    return int(match.group(1)) if match else 0  # a process that has just ended has no memory


def _close_wait_count(port: int) -> int:
    """Connections to this local port whose client has left, and which the broker has not closed."""
    wanted = f":{port:04X}"
    count = 0
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        columns = line.split()
        count += columns[1].endswith(wanted) and columns[3] == _CLOSE_WAIT
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A broker process to look at."""

    pid: int
    port: int
    log_file: Path

    def read(self) -> Figures:
        return Figures.read(self.pid, self.port, self.log_file)


class PeakWatch:
    """A context manager: looks ten times a second, and remembers the largest figures of any broker."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.most = Figures()
        self._watched = watched
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak watch", daemon=True)

    def __enter__(self) -> Self:
        for watched in self._watched:
            forget_peak(watched.pid)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()
        for watched in self._watched:
            try:
                self.most = self.most.most(Figures(rss_bytes=peak_rss_bytes(watched.pid)))
            except OSError:
                continue  # it has ended: someone else says so

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        for watched in self._watched:
            try:
                self.most = self.most.most(watched.read())
            except OSError:
                continue
