"""A Java that is missing or too old is one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.spark.engine.java import find_java, java_version


@pytest.mark.parametrize(
    ("version_text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('openjdk version "21" 2023-09-19', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_every_vendors_way_to_say_a_version_is_understood(version_text: str, version: int | None) -> None:
    assert java_version(version_text) == version


def fake_java(directory: Path, version_text: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_text}' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_is_asked_first(tmp_path: Path) -> None:
    program = fake_java(tmp_path, 'openjdk version "21.0.1"')
    java = find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert (java.path, java.version, java.problem) == (str(program), 21, None)


def test_then_the_path(tmp_path: Path) -> None:
    program = fake_java(tmp_path, 'openjdk version "17.0.1"')
    assert find_java({"PATH": str(program.parent)}).path == str(program)


def test_an_old_java_is_named_with_what_is_needed(tmp_path: Path) -> None:
    program = fake_java(tmp_path, 'java version "1.8.0_292"')
    problem = find_java({"JAVA_HOME": str(tmp_path)}).problem
    assert problem is not None
    assert problem.startswith(
        f"Spark needs Java 17 or newer, and {program} is Java 8: install Java 17 or newer"
    )


@pytest.mark.parametrize("environment", [{"PATH": "/nowhere"}, {"JAVA_HOME": "/nowhere"}])
def test_no_java_is_one_sentence_with_advice(environment: dict[str, str]) -> None:
    java = find_java(environment)
    assert java.path is None
    assert java.problem is not None
    assert "install Java 17 or newer" in java.problem
    assert "\n" not in java.problem
