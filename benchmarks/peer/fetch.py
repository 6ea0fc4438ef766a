"""Fetches Apache Kafka's published jars with Maven into a cache outside the repository.

The newest 4.x version wins whose artifacts all resolve: on the day of a release some of them may be missing,
and then the version before it is taken. What was fetched once is used again without asking Maven.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

ARTIFACTS = ("kafka_2.13", "kafka-tools")
KAFKA_3 = "3.9.2"
"""The newest release before 4.0: our clients are tested against its brokers, too."""
_KAFKA = "org.apache.kafka"
CANDIDATES_MAX = 6
MAVEN_SECONDS_MAX = 900
COMPLETE = "complete"
"""A marker file, written last: a fetch that was cut short is done again."""

_POM = Template("""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.benchmarks</groupId>
  <artifactId>peer</artifactId>
  <version>1</version>
  <dependencies>
$dependencies
  </dependencies>
</project>
""")
_DEPENDENCY = Template("""    <dependency>
      <groupId>$group</groupId>
      <artifactId>$artifact</artifactId>
      <version>$version</version>
    </dependency>""")


class PeerAbsentError(Exception):
    """The peer cannot be had on this machine; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerJars:
    """One fetched version of Apache Kafka."""

    version: str
    directory: Path

    @property
    def class_path(self) -> str:
        return str(self.directory / "*")

    @property
    def config_command(self) -> str:
        """The class of kafka-configs. Kafka 4.4 has it beside the other tools."""
        is_moved = tuple(map(int, self.version.split(".")[:2])) >= (4, 4)
        return "org.apache.kafka.tools.ConfigCommand" if is_moved else "kafka.admin.ConfigCommand"


def cache_directory() -> Path:
    """Returns the directory of fetched artifacts: `$XDG_CACHE_HOME/odradek`, by default `~/.cache/odradek`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek"


def fetch_peer(*, version: str | None = None, newest: bool = False) -> PeerJars:
    """The jars of `version`, or else of the newest 4.x at hand; `newest` asks Maven for a later one.

    The environment variable `ODRADEK_PEER_VERSION` stands for `version`.

    :raises PeerAbsentError: without Java 17, or when nothing is cached and Maven is missing or finds nothing
    """
    _require_java()
    version = version or os.environ.get("ODRADEK_PEER_VERSION")
    cached = _cached()
    if version is not None:
        return cached.get(version) or _fetch(version)
    latest = _latest(cached)
    if latest is not None and not newest:
        return latest
    return _fetch_newest()


def cached_peer(version: str | None = None) -> PeerJars:
    """`version`, or the newest 4.x in the cache; never fetches.

    :raises PeerAbsentError: without Java 17, or when it has not been fetched yet
    """
    _require_java()
    cached = _cached()
    jars = _latest(cached) if version is None else cached.get(version)
    if jars is None:
        named, option = ("", "") if version is None else (f" {version}", f" --version {version}")
        raise PeerAbsentError(
            f"Apache Kafka{named} was not fetched yet (python -m benchmarks.peer --fetch-only{option})"
        )
    return jars


def _latest(cached: Mapping[str, PeerJars]) -> PeerJars | None:
    """Returns the newest 4.x. An older one is there for tests that name it."""
    versions = [version for version in cached if _version_order(version) >= (4,)]
    return cached[max(versions, key=_version_order)] if versions else None


def fetch_artifacts(*artifacts: str, version: str, into: Path, group: str = _KAFKA) -> None:
    """Further jars that Apache Kafka, or another project, publishes, with all that they need.

    :raises PeerAbsentError: when Maven is missing or cannot fetch them
    """
    work = cache_directory() / "maven-project"
    _write_pom(work, version, artifacts, group)
    answer = _maven(
        work, "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={into}"
    )
    if answer.returncode != 0:
        raise PeerAbsentError(f"Maven could not fetch {artifacts} {version}: {_first_error(answer.stdout)}")


def java_command() -> str:
    """The `java` of `JAVA_HOME`, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    result = shutil.which("java")
    if result is None:
        raise PeerAbsentError("no java on the path (Kafka 4.x needs Java 17 or newer)")
    return result


def _require_java() -> None:
    text = _version_text(java_command())
    match = re.search(r'version "(\d+)', text)
    if match is None or int(match.group(1)) < 17:
        result = (text.splitlines() or ["nothing"])[0]
        raise PeerAbsentError(f"Kafka 4.x needs Java 17 or newer, found {result}")


@cache
def _version_text(command: str) -> str:
    """Returns what `java -version` prints: a JVM, so it is asked once in a process."""
    return subprocess.run([command, "-version"], capture_output=True, text=True, check=False).stderr


def _cached() -> dict[str, PeerJars]:
    result = {}
    for directory in cache_directory().glob("peer-*"):
        if (directory / COMPLETE).exists():
            version = directory.name.removeprefix("peer-")
            result[version] = PeerJars(version=version, directory=directory / "jars")
    return result


def _fetch_newest() -> PeerJars:
    candidates = _published_versions()
    if not candidates:
        raise PeerAbsentError("Maven found no published 4.x of org.apache.kafka:kafka_2.13 (offline?)")
    reason = ""
    for version in candidates[:CANDIDATES_MAX]:
        try:
            return _cached().get(version) or _fetch(version)
        except PeerAbsentError as error:
            reason = str(error)
    raise PeerAbsentError(reason)


def _published_versions() -> list[str]:
    """Final 4.x versions, newest first, as Maven's own metadata lists them.

    Resolving a version range makes Maven fetch that metadata, even when the resolution then fails.
    """
    work = cache_directory() / "maven-project"
    _write_pom(work, "[4.0,5.0)", ARTIFACTS)
    _maven(work, "dependency:resolve", "-U")
    text = ""
    for metadata in (_local_repository() / "org/apache/kafka" / ARTIFACTS[0]).glob("maven-metadata-*.xml"):
        text += metadata.read_text(encoding="utf-8")
    versions = set(re.findall(r"<version>(4\.\d+\.\d+)</version>", text))
    return sorted(versions, key=_version_order, reverse=True)


def _fetch(version: str) -> PeerJars:
    target = cache_directory() / f"peer-{version}"
    jars = target / "jars"
    shutil.rmtree(target, ignore_errors=True)
    work = cache_directory() / "maven-project"
    _write_pom(work, version, ARTIFACTS)
    answer = _maven(work, "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    if answer.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        raise PeerAbsentError(f"Maven could not fetch Apache Kafka {version}: {_first_error(answer.stdout)}")
    _fetch_log_binding(work, jars)
    (target / COMPLETE).write_text(f"{version}\n", encoding="utf-8")
    return PeerJars(version=version, directory=jars)


def _fetch_log_binding(work: Path, jars: Path) -> None:
    """Kafka's jars name no slf4j binding; its own distribution adds this one. Without it there is no log."""
    for core in jars.glob("log4j-core-*.jar"):
        version = core.stem.removeprefix("log4j-core-")
        artifact = f"org.apache.logging.log4j:log4j-slf4j-impl:{version}"
        _maven(work, "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jars}")


def _write_pom(work: Path, version: str, artifacts: Sequence[str], group: str = _KAFKA) -> None:
    dependencies = "\n".join(
        _DEPENDENCY.substitute(group=group, artifact=name, version=version) for name in artifacts
    )
    work.mkdir(parents=True, exist_ok=True)
    (work / "pom.xml").write_text(_POM.substitute(dependencies=dependencies), encoding="utf-8")


def _local_repository() -> Path:
    return cache_directory() / "maven-repository"


def _maven(work: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = shutil.which("mvn")
    if command is None:
        raise PeerAbsentError("no mvn (Maven) on the path, and no version of Apache Kafka in the cache")
    try:
        return subprocess.run(
            [command, "-B", "-ntp", f"-Dmaven.repo.local={_local_repository()}", *arguments],
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
            timeout=MAVEN_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        raise PeerAbsentError(f"Maven did not finish within {MAVEN_SECONDS_MAX} s") from None


def _first_error(output: str) -> str:
    for line in output.splitlines():
        if "ERROR" in line:
            return re.sub(r"\(https?://[^)]*\)", "", line.split("ERROR]", 1)[-1]).strip()[:300]
    return "no reason given"


def _version_order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
