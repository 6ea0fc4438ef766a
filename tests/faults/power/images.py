"""File systems in files: what a disk would hold if its machine lost power now is a copy of the file.

An image is a small ext4, mounted through a loop device. What was not made durable is in the page cache of the mounted file
system and not in its file, so a copy has not got it. The images lie in memory (/dev/shm) where that is large enough: fsync ends
at the image's file, which is what is copied.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

IMAGE_BYTES: Final = 96 << 20
_MEMORY: Final = Path("/dev/shm")
_ROOM_BYTES: Final = 2 << 30
_TRIES: Final = 50
_INFLIGHT: Final = 8
_WRITES: Final = (4, 6, 15)
"""Fields of a block device's `stat`: writes, sectors written, flushes; and requests under way."""


def absent() -> str | None:
    """Why there can be no images here; None when there can."""
    if os.geteuid() != 0:
        return "only root may mount images"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    try:
        with room() as directory:
            image = Image(directory / "try.img", directory / "try")
            image.make()
            with image.mounted():
                return None
    except (subprocess.CalledProcessError, OSError) as error:
        return f"an image cannot be mounted: {getattr(error, 'stderr', None) or error}"


@contextmanager
def room() -> Iterator[Path]:
    """A directory for images and copies, in memory if there is room; it is gone afterwards."""
    in_memory = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM_BYTES
    with tempfile.TemporaryDirectory(prefix="odradek-power-", dir=_MEMORY if in_memory else None) as name:
        yield Path(name)


class Image:
    """One file system. `mounted()` is a context manager, which unmounts whatever happens."""

    def __init__(self, file: Path, place: Path) -> None:
        self.file = file
        self.place = place

    def make(self) -> None:
        with self.file.open("wb") as opened:
            opened.truncate(IMAGE_BYTES)
        eager = "lazy_itable_init=0,lazy_journal_init=0"
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", "-E", eager, str(self.file))

    @contextmanager
    def mounted(self) -> Iterator[Path]:
        self.mount()
        try:
            yield self.place
        finally:
            self.unmount()

    def mount(self) -> None:
        self.place.mkdir(parents=True, exist_ok=True)
        _run("mount", "-o", "loop", str(self.file), str(self.place))

    def unmount(self) -> None:
        """Idempotent. A process that was just killed may hold it for a moment."""
        for _ in range(_TRIES):
            if not os.path.ismount(self.place):
                return
            if subprocess.run(["umount", str(self.place)], capture_output=True, check=False).returncode:
                time.sleep(0.1)
        _run("umount", "--lazy", str(self.place))

    def replace_by(self, copy: Path) -> None:
        """What the disk holds after the power cut at which `copy` was made."""
        self.unmount()
        copy.replace(self.file)
        self.mount()

    def activity(self) -> tuple[int, ...] | None:
        """Grows with everything that is written to the device; None while something is under way."""
        device = os.stat(self.place).st_dev
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        if int(fields[_INFLIGHT]):
            return None
        return tuple(int(fields[number]) for number in _WRITES)


def copy_at_one_instant(images: Sequence[Image], target: Path) -> bool:
    """Copy them all while the writers are paused. False if the kernel never was quiet for so long."""
    for _ in range(_TRIES):
        before = [image.activity() for image in images]
        if None not in before:
            for image in images:
                copy(image, target)
            if before == [image.activity() for image in images]:
                return True
        time.sleep(0.002)
    return False


def copy(image: Image, target: Path) -> Path:
    """Copy one while it may be written to: each block is as it was at some instant of the copying."""
    copied = target / image.file.name
    _run("cp", "--sparse=always", str(image.file), str(copied))
    return copied


def keep_images(directory: Path, names: Sequence[str], place: Path) -> None:
    """Copy the copies NAME.img in `directory`, none of which is mounted, to a new directory."""
    place.mkdir(parents=True)
    for name in names:
        _run("cp", "--sparse=always", str(directory / f"{name}.img"), str(place / f"{name}.img"))


@contextmanager
def mounted_copies(directory: Path, names: Sequence[str]) -> Iterator[Path]:
    """Mount the copies NAME.img in `directory` at NAME beside them."""
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(Image(directory / f"{name}.img", directory / name).mounted())
        yield directory


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
