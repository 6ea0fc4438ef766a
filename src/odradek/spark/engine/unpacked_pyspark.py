"""PySpark from a directory, for the workers of a local session, and patience with them.

Spark has its Python workers import PySpark from `pyspark.zip`, which keeps no compiled files: each worker compiles what it
imports, 1.0 s of CPU against 0.1 s from a directory, and keeps the zip's table of files in memory. On a busy machine a worker
then comes too late for Spark, which waits for ten seconds. Spark finds the zip through SPARK_HOME; a home of links, where a
directory has the zip's name, gives workers the package that is installed anyway.

Jars that are signed (Janino's, in Spark 4.3) are copied without their signature: Java would check it for each of their 400
classes, and keeps such classes out of its archive.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from odradek.spark.engine import class_archive
from odradek.telemetry import events

PATIENT_WITH_WORKERS: Final = {"spark.python.authenticate.socketTimeout": "120s"}
"""A setting of each session that we start: how long Python and the JVM wait for each other's first message, in place of 15 s.
Spark has no setting for the ten seconds that it waits for the connection itself.
"""
_VARIABLE: Final = "SPARK_HOME"
_JVM_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_FOLDERS: Final = frozenset({"bin", "sbin", "data", "licenses"})
_JARS: Final = "jars"
_SIGNATURE: Final = re.compile(r"META-INF/[^/]+\.(SF|RSA|DSA|EC)", re.IGNORECASE)
_log = events.get("spark")


@contextmanager
def unpacked_pyspark(cache: Path | None = None) -> Iterator[Path | None]:
    """A JVM that starts within the block has its workers import PySpark from a directory, and reads its classes from an
    archive, if there is one (`class_archive.py`); the home it uses, or None.

    Nothing changes where SPARK_HOME is set, where PySpark did not come from a wheel, or where no home can be written; `cache`
    is where homes are kept (XDG_CACHE_HOME or ~/.cache, with `odradek/spark`). For local masters: other machines have their
    own home.
    """
    home = None if _VARIABLE in os.environ else _home(cache or _cache())
    if home is None:
        yield None
        return
    before = {name: os.environ.get(name) for name in (_VARIABLE, _JVM_OPTIONS)}
    os.environ[_VARIABLE] = str(home)
    os.environ[_JVM_OPTIONS] = " ".join(
        filter(None, [before[_JVM_OPTIONS], *class_archive.options_to_read(home)])
    )
    try:
        yield home
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek" / "spark"


def _home(cache: Path) -> Path | None:
    pyspark, py4j = _package("pyspark"), _package("py4j")
    if pyspark is None or py4j is None:
        return None
    zips = sorted((pyspark / "python" / "lib").glob("*.zip"))
    if not (pyspark / _JARS).is_dir() or not zips:
        return None  # of a Spark that was unpacked by hand: it has a home
    links = {name.name: name for name in pyspark.iterdir() if name.is_dir() and name.name in _FOLDERS}
    links |= {f"{_JARS}/{jar.name}": jar for jar in (pyspark / _JARS).iterdir()}
    links |= {
        f"python/lib/{archive.name}/{package.name}": package
        for archive in zips
        for package in (pyspark, py4j)
        if archive.name.startswith(package.name)
    }
    described = "\n".join(f"{name} {target}" for name, target in sorted(links.items()))
    described += f"\n{(pyspark / _JARS).stat().st_mtime_ns}"
    home = cache / hashlib.sha256(described.encode()).hexdigest()[:16]
    if home.is_dir():
        return home
    try:
        _make(home, links)
    except OSError as error:
        _log.info("pyspark_not_unpacked", reason=str(error))
        return None
    return home


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent.resolve()


def _make(home: Path, links: dict[str, Path]) -> None:
    """Makes the directory of links, all of it or nothing: several processes may start at once."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
    try:
        for name, target in links.items():
            link = draft / name
            link.parent.mkdir(parents=True, exist_ok=True)
            if not (name.startswith(f"{_JARS}/") and _copied_unsigned(target, link)):
                link.symlink_to(target, target_is_directory=True)
        (draft / "RELEASE").touch()  # Spark asks for it to tell a release from a build tree
        try:
            draft.rename(home)
        except OSError:
            if not home.is_dir():
                raise
            shutil.rmtree(draft)  # another process was faster
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _copied_unsigned(jar: Path, copy: Path) -> bool:
    """Tells whether the jar was signed, and has a copy now that is not."""
    if not jar.is_file():
        return False
    try:
        with zipfile.ZipFile(jar) as signed:
            entries = signed.infolist()
            contents = [entry for entry in entries if not _SIGNATURE.fullmatch(entry.filename)]
            if len(contents) == len(entries):
                return False
            with copy.open("wb") as file:
                with zipfile.ZipFile(file, "w") as unsigned:
                    for entry in contents:
                        unsigned.writestr(entry, signed.read(entry))
                file.flush()
                os.fsync(file.fileno())  # a home is used for good once it has its name
    except zipfile.BadZipFile:
        copy.unlink(missing_ok=True)
        return False
    return True
