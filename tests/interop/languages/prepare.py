"""Builds the programs of this folder: `python -m tests.interop.languages.prepare` (`make interop` does it).

Each goes into a cache outside the repository, under a name made of its sources, so that it is built once. What cannot be
built on this machine (no compiler, nothing to fetch from) is absent: this says why, and its tests are skipped with the same
words. Running the tests builds and downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import PeerAbsentError, cached_peer, fetch_peer, java_program
from benchmarks.peer.fetch import KAFKA_3, cache_directory

_HERE = Path(__file__).parent
_BUILD_SECONDS_MAX = 900
NPM_INSTALL = ("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts")
_COMPLETE = "complete"
_JAVA_SOURCES = ("java/Clients.java", "java/ShareMember.java")


class AbsentError(Exception):
    """The client cannot be had here; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A client: its sources, how they are built into a directory, and how the result is run."""

    name: str
    title: str
    """The client's own name."""
    version: str
    sources: tuple[str, ...]
    build: Callable[[Path], None]
    command: Callable[[Path], list[str]]

    @property
    def directory(self) -> Path:
        digest = hashlib.sha256()
        for source in self.sources:
            digest.update((_HERE / source).read_bytes())
        return cache_directory() / "interop" / f"{self.name}-{digest.hexdigest()[:16]}"

    def ready(self) -> list[str]:
        """The command that runs it. AbsentError unless it was built."""
        if not (self.directory / _COMPLETE).exists():
            raise AbsentError(f"{self.name} is not built here: `make interop` does it")
        return self.command(self.directory)

    def prepare(self) -> None:
        """Build it unless that was done. AbsentError where it cannot be built."""
        if (self.directory / _COMPLETE).exists():
            return
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.build(self.directory)
        (self.directory / _COMPLETE).touch()


def run_within(*command: str, within: Path) -> None:
    """Run a build's command. AbsentError when it is not here or fails."""
    if shutil.which(command[0]) is None:
        raise AbsentError(f"there is no {command[0]} on this machine")
    process = subprocess.run(
        command, cwd=within, capture_output=True, text=True, timeout=_BUILD_SECONDS_MAX, check=False
    )
    if process.returncode != 0:
        lines = (process.stderr or process.stdout).strip().splitlines()
        raise AbsentError(f"`{' '.join(command[:3])}` failed: {lines[-1] if lines else process.returncode}")


def _go(name: str, module: str) -> Language:
    def build(directory: Path) -> None:
        run_within("go", "build", "-o", str(directory / name), f"./{name}", within=_HERE / "go")

    sources = ("go/go.mod", "go/go.sum", f"go/{name}/main.go", f"go/{name}/logins.go")
    required = (_HERE / "go" / "go.mod").read_text(encoding="utf-8").split()
    return Language(
        name=name,
        title=module.rsplit("/", 1)[1],
        version=required[required.index(module) + 1].removeprefix("v"),
        sources=sources,
        build=build,
        command=lambda directory: [str(directory / name)],
    )


def _build_node(directory: Path) -> None:
    for file in ("package.json", "kafkajs.js"):
        shutil.copy(_HERE / "node" / file, directory)
    run_within(*NPM_INSTALL, within=directory)


def _build_java(directory: Path) -> None:
    try:
        jars = fetch_peer()
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    sources = [str(_HERE / source) for source in _JAVA_SOURCES]
    run_within("javac", "-cp", jars.class_path, "-d", str(directory), *sources, within=directory)


def share_member() -> list[str]:
    """Returns the command that runs `java/ShareMember.java`. AbsentError unless it was built."""
    return [*LANGUAGES["java"].ready()[:-1], "ShareMember"]


def _java(directory: Path) -> list[str]:
    try:
        jars = cached_peer()
    except PeerAbsentError as reason:
        raise AbsentError(str(reason)) from reason
    return [*java_program(jars, classes=directory), "Clients"]


LANGUAGES = {
    named.name: named
    for named in (
        _go("franz", "github.com/twmb/franz-go"),
        _go("sarama", "github.com/IBM/sarama"),
        Language(
            name="kafkajs",
            title="kafkajs",
            version=json.loads((_HERE / "node" / "package.json").read_text(encoding="utf-8"))["dependencies"][
                "kafkajs"
            ],
            sources=("node/package.json", "node/kafkajs.js"),
            build=_build_node,
            command=lambda directory: ["node", str(directory / "kafkajs.js")],
        ),
        Language(
            name="java",
            title="java",
            version="as the peer",
            sources=_JAVA_SOURCES,
            build=_build_java,
            command=_java,
        ),
    )
}


def main(programs: Iterable[Language] = LANGUAGES.values()) -> int:
    """Build all of them; say what is absent. 0 in any case: an absent client is no failure."""
    for language in programs:
        try:
            language.prepare()
        except AbsentError as reason:
            sys.stdout.write(f"{language.name}: absent: {reason}\n")
        else:
            sys.stdout.write(f"{language.name}: ready\n")
    return 0


def prepare_kafka_3() -> int:
    """Fetch the broker of `own_client/test_kafka_3.py`; say why where it cannot be had."""
    try:
        fetch_peer(version=KAFKA_3)
    except PeerAbsentError as reason:
        sys.stdout.write(f"Kafka {KAFKA_3}: absent: {reason}\n")
    else:
        sys.stdout.write(f"Kafka {KAFKA_3}: ready\n")
    return 0


if __name__ == "__main__":
    sys.exit(main() or prepare_kafka_3())
