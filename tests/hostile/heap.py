"""How much of a broker's memory CPython's allocator holds for nothing: pools and blocks without an object.

Python takes small objects from arenas of 1 MiB, and gives an arena back when its last object is gone. While a request of many
elements is served, a hundred arenas fill; what is made meanwhile and stays (the code of a message version, a connection) keeps
its arena. The rest of that arena is used again by the next request, but counts as resident. It is bounded by what a request may
use at most, and no object of anyone lies in it. So "kept" means: resident memory without it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

INSIDE: Final = Path(__file__).parent / "inside"
_FILE: Final = "ODRADEK_HOSTILE_HEAP"
_ANSWER_SECONDS: Final = 10.0
_ARENAS: Final = re.compile(r"^\d+ arenas \* \d+ bytes/arena\s*=\s*([\d,]+)", re.MULTILINE)
_USED: Final = re.compile(r"^# bytes in allocated blocks\s*=\s*([\d,]+)", re.MULTILINE)


def environment(directory: Path) -> Mapping[str, str]:
    """For brokers that are to be asked: `directory` gets a file of each."""
    path = os.pathsep.join(filter(None, (str(INSIDE), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, _FILE: str(directory / "heap-{pid}")}


def unused_bytes(text: str) -> int:
    """Of what `sys._debugmallocstats` says: the bytes of its arenas in which no object lies. ValueError for another text."""
    arenas, used = _ARENAS.search(text), _USED.search(text)
    if arenas is None or used is None:
        raise ValueError("no figures of CPython's allocator")
    return _number(arenas.group(1)) - _number(used.group(1))


def ask(pid: int, directory: Path) -> int:
    """The unused bytes of a broker that was started with `environment(directory)`; 0 where it does not answer."""
    file = directory / f"heap-{pid}"
    file.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    deadline = time.monotonic() + _ANSWER_SECONDS
    while not file.exists():
        if time.monotonic() > deadline:
            return 0
        time.sleep(0.05)
    return unused_bytes(file.read_text(encoding="ascii"))


def _number(text: str) -> int:
    return int(text.replace(",", ""))
