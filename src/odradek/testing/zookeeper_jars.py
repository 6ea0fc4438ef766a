"""The jars of Apache ZooKeeper's own server, from Debian's package or from a cache that Maven filled.

Nothing is fetched unless someone asks for it: `python -m odradek.testing.zookeeper_jars`. Tests that need ZooKeeper are
skipped without it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from odradek.model.errors import OdradekError

VERSIONS: Final = ("3.9.5", "3.9.4")
"""Versions to fetch: the first that Maven can resolve is used."""
_FETCH_SECONDS: Final = 900
_COMPLETE: Final = "complete"
"""A marker file, written last: a fetch that was cut short is done again."""
_NOT_DECLARED: Final = (
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("org.slf4j", "slf4j-simple", "2.0.13"),
)
"""Artifacts that the server needs, but ZooKeeper's does not declare; the last writes its log to standard error."""

_DEBIAN: Final = Path("/usr/share/java")
_DEBIAN_JARS: Final = (
    "zookeeper", "zookeeper-jute", "commons-cli", "commons-io", "metrics-core", "slf4j-api", "slf4j-simple", "snappy-java",
    "netty-buffer", "netty-codec", "netty-common", "netty-handler", "netty-resolver", "netty-transport",
    "netty-transport-native-epoll", "netty-transport-native-unix-common",
)  # fmt: skip

_POM = Template("""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>odradek.testing</groupId>
  <artifactId>zookeeper</artifactId>
  <version>1</version>
  <dependencies>
$dependencies
  </dependencies>
</project>
""")
_DEPENDENCY = Template(
    "    <dependency><groupId>$group</groupId><artifactId>$artifact</artifactId><version>$version</version></dependency>"
)


class ZooKeeperAbsent(OdradekError):
    """The error where this machine has no ZooKeeper; the message is one sentence with the reason and a
    remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperJars:
    """A server that can be started. `class_path` is what `java -cp` takes."""

    version: str
    java: str
    class_path: str


def absent() -> str | None:
    """Returns why there is no ZooKeeper here; None if there is one. Fetches nothing."""
    try:
        find_jars()
    except ZooKeeperAbsent as reason:
        return str(reason)
    return None


def find_jars() -> ZooKeeperJars:
    """Returns the newest server in the cache, else Debian's. Raises `ZooKeeperAbsent`."""
    java = _java()
    for version in VERSIONS:
        target = _cache() / f"zookeeper-{version}"
        if (target / _COMPLETE).exists():
            return ZooKeeperJars(version=version, java=java, class_path=f"{target / 'jars'}/*")
    if (_DEBIAN / "zookeeper.jar").exists():
        jars = [str(_DEBIAN / f"{name}.jar") for name in _DEBIAN_JARS]
        return ZooKeeperJars(version="of the system", java=java, class_path=":".join(jars))
    raise ZooKeeperAbsent(
        "no ZooKeeper: install Debian's zookeeper, or fetch it with python -m odradek.testing.zookeeper_jars"
    )


def fetch_jars() -> ZooKeeperJars:
    """Finds the jars as `find_jars` does, but fetches missing ones with Maven."""
    try:
        return find_jars()
    except ZooKeeperAbsent:
        _java()
    reasons = []
    for version in VERSIONS:
        try:
            _fetch(version)
            return find_jars()
        except ZooKeeperAbsent as reason:
            reasons.append(str(reason))
    raise ZooKeeperAbsent("; ".join(reasons))


def _fetch(version: str) -> None:
    target = _cache() / f"zookeeper-{version}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    wanted = (("org.apache.zookeeper", "zookeeper", version), *_NOT_DECLARED)
    dependencies = "\n".join(
        _DEPENDENCY.substitute(group=group, artifact=artifact, version=its) for group, artifact, its in wanted
    )
    (target / "pom.xml").write_text(_POM.substitute(dependencies=dependencies), encoding="utf-8")
    _maven(target, version)
    (target / _COMPLETE).write_text(f"{version}\n", encoding="utf-8")


def _maven(target: Path, version: str) -> None:
    command = shutil.which("mvn")
    if command is None:
        raise ZooKeeperAbsent("no mvn (Maven) on the path, and no ZooKeeper in the cache")
    options = ("-B", "-ntp", f"-Dmaven.repo.local={_cache() / 'maven-repository'}")
    goal = ("dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target / 'jars'}")
    try:
        finished = subprocess.run(
            [command, *options, *goal],
            cwd=target,
            capture_output=True,
            text=True,
            check=False,
            timeout=_FETCH_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise ZooKeeperAbsent(f"Maven did not finish within {_FETCH_SECONDS} s") from None
    if finished.returncode != 0:
        reply = next((line for line in finished.stdout.splitlines() if "ERROR" in line), "no reason given")
        reason = re.sub(r"\(\w+://[^)]*\)", "", reply.split("ERROR]", 1)[-1]).strip()[:300]
        raise ZooKeeperAbsent(f"Maven could not fetch ZooKeeper {version}: {reason}")


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek"


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found_java = shutil.which("java")
    if found_java is None:
        raise ZooKeeperAbsent("no java on the path (ZooKeeper needs Java 8 or newer)")
    return found_java


def main() -> int:
    try:
        jars = fetch_jars()
    except ZooKeeperAbsent as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 3
    sys.stdout.write(f"ZooKeeper {jars.version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
