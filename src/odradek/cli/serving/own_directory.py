"""A temporary directory that goes with us, whatever ends us: a small process that outlives us removes it after SIGKILL, too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

_REMOVE_S: Final = 90
_REMOVER: Final = f"""
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range({_REMOVE_S * 5}):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.2)
"""
"""Our end of its standard input closes when we end. Processes of ours may still write for a moment."""


@contextmanager
def own_directory(prefix: str) -> Iterator[Path]:
    """Yields a directory that is removed after the block, and when this process is killed in it."""
    directory = mkdtemp(prefix=prefix)
    remover = subprocess.Popen(
        [sys.executable, "-S", "-c", _REMOVER, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # it outlives us, and Ctrl-C does not reach it
    )
    assert remover.stdin is not None
    try:
        yield Path(directory)
    finally:
        remover.stdin.close()
        remover.wait()
