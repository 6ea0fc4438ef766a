"""The class archive (class data sharing, JEP 350): Spark's JVM starts with the classes that an earlier one has read.

The archive is in the same directory as the home of links.

From the start to the first rows of a streaming query that counts, a JVM reads, checks and links some 20,000 classes: half of
its 14 s of CPU. The archive has them ready to be mapped, and JVMs that run side by side share it.

The first JVM that ends in order writes it, after its Python process has ended; or `class_archive_writer.py` does, at
installation or in an image. A JVM writes the archive's header last, so a draft with a header is whole; the next start gives
it its name. An archive of another Java, or of other jars, has another name. A JVM that cannot use its archive starts without.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from odradek.model.java_numbers import is_digits
from odradek.spark.engine.java import java_program
from odradek.telemetry import events

SWITCH: Final = "ODRADEK_SPARK_CLASS_ARCHIVE"
"""An environment variable; `off`: no archive is written or read."""
_MAGIC: Final = 0xF00BABA8.to_bytes(4, sys.byteorder)
"""The first bytes of a dynamic archive, in each version of HotSpot."""
_QUIET: Final = "-Xlog:cds*=off"
"""Which classes are left out, or why an archive is not used, is of no use to anyone who reads the terminal."""
_CLAIM_S: Final = 120.0
"""How long after the start of a process that has ended its JVM may still be writing."""
_log = events.get("spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassArchive:
    """The archive of the classes of one Spark home, for one Java."""

    path: Path

    @classmethod
    def of(cls, home: Path, environment: Mapping[str, str] | None = None) -> ClassArchive | None:
        """Returns None where it is switched off, or where the JVM is not HotSpot with an archive of its own classes."""
        environment = os.environ if environment is None else environment
        program = java_program(environment)
        if program is None or environment.get(SWITCH, "").lower() == "off":
            return None
        java = Path(program).resolve()
        own_classes, jars = java.parent.parent / "lib/server/classes.jsa", (home / "jars").resolve()
        if not own_classes.is_file() or any(sign in str(home) for sign in " \t\"'\\"):
            return None
        named = f"{java} {java.stat().st_mtime_ns} {own_classes.stat().st_mtime_ns} {jars} {jars.stat().st_mtime_ns}"
        return cls(path=home.with_name(f"{home.name}-{hashlib.sha256(named.encode()).hexdigest()[:16]}.jsa"))

    @property
    def is_there(self) -> bool:
        return _is_whole(self.path)

    @property
    def _claim(self) -> Path:
        return self.path.with_suffix(".claim")

    def options_to_read(self) -> list[str]:
        """Returns options for a JVM that reads the archive; none while there is no archive."""
        self._adopt()
        return [f"-XX:SharedArchiveFile={self.path}", _QUIET] if self.is_there else []

    def options_to_write(self) -> list[str]:
        """Returns options for a JVM of this process that writes the archive when it ends; none where there is an archive,
        or another process has begun to write one.
        """
        if self.is_there or not self._claimed():
            return []
        return [f"-XX:ArchiveClassesAtExit={self._draft(os.getpid())}", _QUIET]

    # -- inside

    def _draft(self, pid: int) -> Path:
        return self.path.with_suffix(f".{pid}.draft")

    def _drafts(self) -> Iterator[Path]:
        return self.path.parent.glob(f"{self.path.stem}.*.draft")

    def _adopt(self) -> None:
        """A draft that is whole gets the name, once it is on the disk."""
        for draft in self._drafts():
            if self.is_there:
                draft.unlink(missing_ok=True)
            elif _is_whole(draft):
                with draft.open("rb") as written:
                    os.fsync(written.fileno())
                draft.rename(self.path)
                self._claim.unlink(missing_ok=True)
                self._remove_older()

    def _remove_older(self) -> None:
        """Removes archives of homes of the same PySpark, and of homes whose PySpark was removed: each has 170 MB."""
        own = _pyspark_of(self.path)
        for other in self.path.parent.glob("*.jsa"):
            if other != self.path and _pyspark_of(other) in (own, None):
                other.unlink(missing_ok=True)

    def _claimed(self) -> bool:
        """Tells whether this process is the one that writes."""
        for _ in range(2):
            try:
                with self._claim.open("x") as claim:
                    claim.write(str(os.getpid()))
            except FileExistsError:
                if self._is_claimed_by_another():
                    return False
                self._claim.unlink(missing_ok=True)
                for draft in self._drafts():
                    draft.unlink(missing_ok=True)
            else:
                return True
        return False

    def _is_claimed_by_another(self) -> bool:
        try:
            claimant = self._claim.read_text()
            age_s = time.time() - self._claim.stat().st_mtime
        except FileNotFoundError:
            return False
        return age_s < _CLAIM_S or (is_digits(claimant) and Path(f"/proc/{claimant}").exists())


def _pyspark_of(archive: Path) -> Path | None:
    """Returns the directory that the `bin` of the archive's home resolves to; None where it was removed."""
    programs = archive.with_name(archive.name.partition("-")[0]) / "bin"
    return programs.resolve() if programs.exists() else None


def _is_whole(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def options_to_read(home: Path) -> list[str]:
    """Returns options with which a JVM of this home reads the archive. No error of these files keeps Spark from starting."""
    try:
        archive = ClassArchive.of(home)
        return [] if archive is None else archive.options_to_read()
    except OSError as error:
        _log.info("class_archive_not_used", reason=str(error))
        return []


def options_to_write(home: Path) -> list[str]:
    """Returns options with which a JVM of this home writes the archive when it ends."""
    try:
        archive = ClassArchive.of(home)
        return [] if archive is None else archive.options_to_write()
    except OSError as error:
        _log.info("class_archive_not_written", reason=str(error))
        return []
