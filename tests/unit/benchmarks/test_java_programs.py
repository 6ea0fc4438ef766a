"""Kafka's Java programs read an archive of classes, which is written once; without one, they start all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from benchmarks.peer import PeerJars, java_program

JAVA = """#!/bin/sh
echo "$@" >> {runs}
for word; do case "$word" in -XX:ArchiveClassesAtExit=*) {writes} ;; esac; done
"""


@pytest.fixture
def jars(tmp_path: Path) -> PeerJars:
    directory = tmp_path / "peer" / "jars"
    directory.mkdir(parents=True)
    (directory / "kafka-clients.jar").write_bytes(b"classes")
    return PeerJars(version="4.4.0", directory=directory)


def use_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, writes: str) -> Path:
    """Installs a Java that notes its words, and does `writes` for an option that asks for an archive; returns the notes."""
    home, runs = tmp_path / "java", tmp_path / "runs"
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(JAVA.format(runs=runs, writes=writes))
    program.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return runs


def test_the_archive_is_written_once_and_read_by_all(
    jars: PeerJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = use_java(tmp_path, monkeypatch, writes='echo archive > "${word#*=}"')
    first = java_program(jars)
    assert java_program(jars) == first
    assert len(runs.read_text().splitlines()) == 1
    (archive,) = jars.directory.parent.glob("*.jsa")
    assert f"-XX:SharedArchiveFile={archive}" in first
    assert first[-2:] == ["-cp", jars.class_path]
    assert java_program(jars, "-Da=b", classes=tmp_path)[-3:] == [
        "-Da=b",
        "-cp",
        f"{jars.class_path}:{tmp_path}",
    ]


def test_other_jars_have_another_archive_and_the_old_one_goes(
    jars: PeerJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java(tmp_path, monkeypatch, writes='echo archive > "${word#*=}"')
    old = jars.directory.parent / "programs-0123456789abcdef.jsa"
    old.touch()
    java_program(jars)
    assert not old.exists()
    assert len(list(jars.directory.parent.glob("*.jsa"))) == 1


def test_a_java_without_archives_runs_programs_without(
    jars: PeerJars, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_java(tmp_path, monkeypatch, writes="exit 1")
    command = java_program(jars)
    assert command[0] == f"{os.environ['JAVA_HOME']}/bin/java"
    assert not any("SharedArchiveFile" in word for word in command)
    assert list(jars.directory.parent.glob("*")) == [jars.directory]
