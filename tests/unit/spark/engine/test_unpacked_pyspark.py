"""PySpark from a directory: the home of links, made once, and left alone where there is another."""

import os
import shlex
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.config.files.properties import parse_properties
from odradek.spark.engine import jvm
from odradek.spark.engine.unpacked_pyspark import PATIENT_WITH_WORKERS, unpacked_pyspark

pyspark = pytest.importorskip("pyspark")


@pytest.fixture(autouse=True)
def _without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_workers_would_import_the_installed_package_from_where_the_zip_would_be(tmp_path: Path) -> None:
    with unpacked_pyspark(tmp_path) as home:
        assert home is not None
        assert os.environ["SPARK_HOME"] == str(home)
        (zipped,) = (home / "python" / "lib").glob("pyspark.zip")
        script = "import pyspark; print(pyspark.__file__)"
        printed = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONPATH": str(zipped)},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        assert printed.strip() == str(zipped / "pyspark" / "__init__.py")
        assert Path(printed.strip()).samefile(pyspark.__file__)
        assert any((home / "jars").glob("spark-core_*.jar"))
    assert "SPARK_HOME" not in os.environ


def test_a_home_is_made_once(tmp_path: Path) -> None:
    with unpacked_pyspark(tmp_path) as home:
        assert home is not None
        made = home.stat().st_mtime_ns
    with unpacked_pyspark(tmp_path) as again:
        assert again == home
        assert again.stat().st_mtime_ns == made
    assert list(tmp_path.iterdir()) == [home]


def test_no_jar_in_a_home_is_signed_and_none_lacks_a_class(tmp_path: Path) -> None:
    with unpacked_pyspark(tmp_path) as home:
        assert home is not None
    installed = Path(pyspark.__file__).parent / "jars"
    assert {jar.name for jar in (home / "jars").iterdir()} == {jar.name for jar in installed.iterdir()}
    copies = [jar for jar in (home / "jars").glob("*.jar") if not jar.is_symlink()]
    assert {jar.name.rpartition("-")[0] for jar in copies} == {"janino", "commons-compiler"}
    for copy in copies:
        with zipfile.ZipFile(copy) as unsigned, zipfile.ZipFile(installed / copy.name) as signed:
            assert not [name for name in unsigned.namelist() if name.endswith((".SF", ".DSA", ".RSA"))]
            for name in signed.namelist():
                if name.endswith(".class"):
                    assert unsigned.read(name) == signed.read(name)


def test_a_home_of_the_user_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with unpacked_pyspark(tmp_path) as home:
        assert home is None
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not any(tmp_path.iterdir())


def test_where_nothing_can_be_written_spark_starts_as_ever(tmp_path: Path) -> None:
    cache = tmp_path / "a file"
    cache.touch()
    with unpacked_pyspark(cache) as home:
        assert home is None
        assert "SPARK_HOME" not in os.environ


def replace_launch(monkeypatch: pytest.MonkeyPatch, launch: Callable[[Any], None]) -> None:
    monkeypatch.setattr(jvm, "java_gateway", SimpleNamespace(launch_gateway=launch))
    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)


class _Started(Exception):
    """A stand-in for a JVM."""


def test_a_jvm_that_we_start_waits_for_slow_workers_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (key,) = PATIENT_WITH_WORKERS
    seen = []

    def started(popen_kwargs: Any) -> None:
        words = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        handed_over = Path(words[words.index("--properties-file") + 1])
        seen.append(parse_properties(handed_over.read_text("utf-8")).values.get(key))
        raise _Started

    replace_launch(monkeypatch, started)
    for settings in ({}, {key: "7s"}):
        with pytest.raises(_Started):
            jvm.start_jvm(settings)
    assert seen == ["120s", "7s"]


@pytest.mark.parametrize(
    "words", [None, "--conf spark.ui.enabled=false pyspark-shell", "--properties-file {} pyspark-shell"]
)
def test_settings_reach_a_jvm_by_a_file_that_only_we_can_read_and_that_goes(
    words: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the machine can read the command line of a JVM."""
    own = tmp_path / "own.conf"
    own.write_text("spark.x=theirs\nspark.y=kept\n")
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    if words is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", words.format(own))
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    seen: list[Path] = []

    def started(popen_kwargs: Any) -> None:
        given = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert "PLANTED" not in " ".join(given)
        assert given[-1] == "pyspark-shell"
        assert ("spark.ui.enabled=false" in given) is ("ui.enabled" in (words or ""))
        [place] = [number for number, word in enumerate(given) if word == "--properties-file"]
        handed_over = Path(given[place + 1])
        assert stat.S_IMODE(handed_over.stat().st_mode) == 0o600
        values = parse_properties(handed_over.read_text("utf-8")).values
        assert values["spark.hadoop.fs.s3a.secret.key"] == " PLANTED\\ =ü"
        assert values["spark.x"] == "ours"
        is_own = "properties" in (words or "")
        assert (values.get("spark.y") == "kept") is is_own
        assert ("--load-spark-defaults" in given) is not is_own
        seen.append(handed_over)
        raise _Started

    replace_launch(monkeypatch, started)
    with pytest.raises(_Started):
        jvm.start_jvm({"spark.hadoop.fs.s3a.secret.key": " PLANTED\\ =ü", "spark.x": "ours"})
    assert [path.exists() for path in seen] == [False]
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before
