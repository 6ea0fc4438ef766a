"""How tests run Kafka's Java clients and tools: in JVMs that live for seconds, and map classes that an earlier one has read.

A client reads, checks and links some 4,000 classes when it starts: with an archive of them (class data sharing) it takes 0.7 s
of CPU in place of 1.2 s. The first process that needs the archive has Kafka's console consumer write it, beside the jars.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from functools import cache
from pathlib import Path

from benchmarks.peer.fetch import PeerJars, java_command

BRIEF = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that compiles once, and fast."""
_QUIET = "-Xlog:cds*=off"
_WRITE_SECONDS_MAX = 120
_NO_BROKER = "127.0.0.1:9"
_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_CONSUMES_NOTHING = ("--bootstrap-server", _NO_BROKER, "--topic", "t", "--timeout-ms", "1000")


def java_program(jars: PeerJars, *flags: str, classes: Path | None = None) -> list[str]:
    """Returns the words of a command line up to the name of the class. `classes`: a directory of further classes."""
    class_path = jars.class_path if classes is None else f"{jars.class_path}:{classes}"
    return [java_command(), *BRIEF, *_archive_options(jars, java_command()), *flags, "-cp", class_path]


@cache
def _archive_options(jars: PeerJars, java: str) -> tuple[str, ...]:
    """Returns the options that read the archive; none where this Java writes none: programs read their classes then."""
    archive = _archive(jars, Path(java).resolve())
    if not archive.exists() and not _write(archive, jars, java):
        return ()
    return f"-XX:SharedArchiveFile={archive}", _QUIET


def _archive(jars: PeerJars, java: Path) -> Path:
    """Returns the path for the archive of these jars and this Java."""
    parts = [f"{java} {java.stat().st_mtime_ns}", *BRIEF]
    parts += [
        f"{jar.name} {jar.stat().st_size} {jar.stat().st_mtime_ns}"
        for jar in sorted(jars.directory.glob("*.jar"))
    ]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return jars.directory.parent / f"programs-{digest}.jsa"


def _write(archive: Path, jars: PeerJars, java: str) -> bool:
    """Writes the archive, and removes those of other jars; tells whether it is there. Several processes may do so at once."""
    draft = archive.with_suffix(f".{os.getpid()}.draft")
    command = [java, *BRIEF, f"-XX:ArchiveClassesAtExit={draft}", _QUIET, "-cp", jars.class_path, _CONSUMER]
    try:
        subprocess.run(
            [*command, *_CONSUMES_NOTHING], capture_output=True, timeout=_WRITE_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        draft.unlink(missing_ok=True)
    if not draft.exists():
        return False
    draft.rename(archive)
    for other in archive.parent.glob("programs-*.jsa"):
        if other != archive:
            other.unlink(missing_ok=True)
    return True
