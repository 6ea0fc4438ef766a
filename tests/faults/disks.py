"""A broker's data directory on a file system of its own, that becomes full: a tmpfs which shrinks to what is in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

_LARGE: Final = 2 << 30
_LEFT: Final = 8 << 10
_ATTEMPTS: Final = 50


def absent() -> str | None:
    """Why nothing can be mounted here; None when it can."""
    if shutil.which("mount") is None or os.geteuid() != 0:
        return "only root may mount a file system"
    with tempfile.TemporaryDirectory() as directory:
        tried = _mount("size=64k", Path(directory))
        if tried.returncode:
            return tried.stderr.strip()
        _unmount(Path(directory))
    return None


class SmallDisk:
    """Mounted at `path`, which is empty; a context manager. Its content goes with it."""

    def __init__(self, path: Path, size_bytes: int = _LARGE) -> None:
        self.path = path
        self._size_bytes = size_bytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True, exist_ok=True)
        tried = _mount(f"size={self._size_bytes}", self.path)
        if tried.returncode:
            raise OSError(f"no file system can be mounted at {self.path}: {tried.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        _unmount(self.path)

    @contextmanager
    def full(self) -> Iterator[None]:
        """For as long as the block lasts, hardly another byte can be written."""
        try:
            self._shrink()
            yield
        finally:
            _mount(f"remount,size={self._size_bytes}", self.path).check_returncode()

    def _shrink(self) -> None:
        for _ in range(_ATTEMPTS):  # someone may write between the two steps: then the new size is refused
            state = os.statvfs(self.path)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            if _mount(f"remount,size={used + _LEFT}", self.path).returncode == 0:
                return
        raise OSError(f"{self.path} cannot be made smaller")


def _mount(options: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _unmount(path: Path) -> None:
    subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True)
