"""The archive of Spark's classes: who writes it, when it counts, what is removed, and that a JVM maps it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.spark.engine.class_archive import SWITCH, ClassArchive, options_to_read, options_to_write
from odradek.spark.engine.java import find_java
from odradek.spark.engine.unpacked_pyspark import unpacked_pyspark

WHOLE = 0xF00BABA8.to_bytes(4, sys.byteorder) + b"classes"
NO_PROCESS = 2**22
MAIN = "org.apache.hadoop.util.VersionInfo"
LONG_AGO = 1_000_000_000


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "java"
    for file in ("bin/java", "lib/server/classes.jsa"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def new_home(cache: Path, name: str) -> Path:
    for folder in ("jars", "bin"):
        (cache / name / folder).mkdir(parents=True)
    return cache / name


@pytest.fixture
def home(tmp_path: Path, java: Path) -> Path:
    return new_home(tmp_path / "cache", "home")


def archive_of(home: Path) -> ClassArchive:
    archive = ClassArchive.of(home)
    assert archive is not None
    return archive


def draft_in(options: list[str]) -> Path:
    (path,) = (
        option.partition("=")[2] for option in options if option.startswith("-XX:ArchiveClassesAtExit")
    )
    return Path(path)


def test_one_process_writes_and_later_ones_read(home: Path) -> None:
    assert options_to_read(home) == []
    draft = draft_in(options_to_write(home))
    assert options_to_write(home) == []
    draft.write_bytes(bytes(len(WHOLE)))
    assert options_to_read(home) == []
    draft.write_bytes(WHOLE)
    assert f"-XX:SharedArchiveFile={archive_of(home).path}" in options_to_read(home)
    assert options_to_write(home) == []
    assert {path.name for path in home.parent.iterdir()} == {"home", archive_of(home).path.name}


def test_another_writes_when_the_first_one_is_gone_without_an_archive(home: Path) -> None:
    draft = draft_in(options_to_write(home))
    draft.write_bytes(b"half")
    (claim,) = home.parent.glob("*.claim")
    claim.write_text(str(NO_PROCESS))
    assert options_to_write(home) == []  # its JVM may still be writing
    os.utime(claim, (LONG_AGO, LONG_AGO))
    assert options_to_write(home)
    assert not draft.exists()


def test_a_process_that_is_alive_keeps_its_claim(home: Path) -> None:
    options_to_write(home)
    (claim,) = home.parent.glob("*.claim")
    os.utime(claim, (LONG_AGO, LONG_AGO))
    assert options_to_write(home) == []


def test_another_java_has_another_archive_and_the_older_one_is_removed(home: Path, java: Path) -> None:
    older, other_home = archive_of(home).path, new_home(home.parent, "other")
    older.write_bytes(WHOLE)
    of_another, of_none = other_home.with_name("other-1.jsa"), other_home.with_name("gone-1.jsa")
    of_another.write_bytes(WHOLE)
    of_none.write_bytes(WHOLE)
    os.utime(java / "lib/server/classes.jsa", (LONG_AGO, LONG_AGO))
    assert options_to_read(home) == []
    draft_in(options_to_write(home)).write_bytes(WHOLE)
    assert options_to_read(home)
    assert archive_of(home).path != older
    assert set(home.parent.glob("*.jsa")) == {archive_of(home).path, of_another}


def test_the_archive_of_an_older_home_of_the_same_pyspark_is_removed(tmp_path: Path, java: Path) -> None:
    programs = tmp_path / "pyspark" / "bin"
    programs.mkdir(parents=True)
    older, newer = (tmp_path / "cache" / name for name in ("older", "newer"))
    for home in (older, newer):
        (home / "jars").mkdir(parents=True)
        (home / "bin").symlink_to(programs)
        draft_in(options_to_write(home)).write_bytes(WHOLE)
        assert options_to_read(home)
    assert not archive_of(older).is_there
    assert archive_of(newer).is_there


def test_it_can_be_switched_off(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive_of(home).path.write_bytes(WHOLE)
    monkeypatch.setenv(SWITCH, "off")
    assert options_to_read(home) == options_to_write(home) == []


def test_a_java_without_an_archive_of_its_own_classes_gets_no_options(home: Path, java: Path) -> None:
    (java / "lib/server/classes.jsa").unlink()
    assert options_to_read(home) == options_to_write(home) == []


def test_where_nothing_can_be_written_spark_starts_as_ever(java: Path, tmp_path: Path) -> None:
    assert options_to_read(tmp_path / "nowhere") == options_to_write(tmp_path / "nowhere") == []


def test_what_the_user_gives_the_jvm_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, java: Path
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dmine=1")
    with unpacked_pyspark(tmp_path / "homes") as home:
        assert home is not None
        assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"
    archive_of(home).path.write_bytes(WHOLE)
    with unpacked_pyspark(tmp_path / "homes"):
        assert os.environ["SPARK_SUBMIT_OPTS"].startswith(
            f"-Dmine=1 -XX:SharedArchiveFile={archive_of(home).path}"
        )
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Dmine=1"


@pytest.mark.skipif(find_java().problem is not None, reason="a usable Java is absent")
def test_a_jvm_writes_it_and_the_next_one_maps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    loaded = tmp_path / "loaded"

    def classes_of(home: Path, options: list[str]) -> str:
        """Returns the source of each class."""
        command = [
            str(find_java().path),
            *options,
            f"-Xlog:class+load:file={loaded}",
            "-cp",
            f"{home}/jars/*",
        ]
        subprocess.run([*command, MAIN], check=True, capture_output=True)
        return loaded.read_text()

    with unpacked_pyspark(tmp_path / "homes") as home:
        assert home is not None
        if ClassArchive.of(home) is None:
            pytest.skip("absent: this Java has no archive of its own classes")
        assert "(top)" not in classes_of(home, options_to_write(home))
        assert f"{MAIN} source: shared objects file (top)" in classes_of(home, options_to_read(home))
