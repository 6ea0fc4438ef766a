"""The process that listens on a TCP port of this machine, as far as Linux shows it in /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from odradek.model.java_numbers import is_digits

_LISTENING: Final = "0A"
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    pid: int
    command: str


def listening_owner(port: int, *, root: str = "") -> Owner | None:
    """Returns the process that listens on `port`; None if there is none, or if it belongs to someone else."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port, root)}
    if not sockets:
        return None
    for pid in _numbers(f"{root}/proc"):
        if _holds_any(f"{root}/proc/{pid}/fd", sockets):
            return Owner(pid=pid, command=_command(f"{root}/proc/{pid}/cmdline"))
    return None


def _listening_inodes(port: int, root: str) -> list[str]:
    inodes = []
    for table in _TABLES:
        for line in _read(root + table).splitlines()[1:]:
            columns = line.split()
            if len(columns) > 9 and columns[3] == _LISTENING and columns[1].endswith(f":{port:04X}"):
                inodes.append(columns[9])
    return inodes


def _holds_any(directory: str, sockets: set[str]) -> bool:
    for descriptor in _numbers(directory):
        try:
            if os.readlink(f"{directory}/{descriptor}") in sockets:
                return True
        except OSError:
            continue
    return False


def _command(path: str) -> str:
    return " ".join(_read(path).split("\0")).strip()[:120] or "unknown"


def _numbers(directory: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(directory) if is_digits(name))
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
