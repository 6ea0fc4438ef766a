"""A local session is for its user: its port asks for a secret, and its files are in a directory of the user's."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from odradek.spark.engine.own_session import DIRECTORIES, own_session


@pytest.fixture(autouse=True)
def _without_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (DIRECTORIES, "SPARK_LOCAL_IP"):
        monkeypatch.delenv(variable, raising=False)


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]"])
def test_a_local_session_is_for_its_user(master: str) -> None:
    with own_session(master) as settings:
        directory = Path(os.environ[DIRECTORIES])
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert DIRECTORIES not in os.environ
    assert settings == {
        "spark.authenticate": "true",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(directory),
    }


def test_a_long_path_has_no_sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with own_session("local[*]") as settings:
        assert Path(os.environ[DIRECTORIES]).parent == deep
    assert not [name for name in settings if "socket" in name]


@pytest.mark.parametrize("master", ["", "yarn", "spark://10.0.0.1:7077", "local-cluster[2,1,1024]"])
def test_the_master_of_a_cluster_has_its_own_rules(master: str) -> None:
    with own_session(master) as settings:
        assert settings == {}
        assert DIRECTORIES not in os.environ


def test_what_the_user_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORIES, "/large/disk")
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    with own_session("local[*]") as settings:
        assert os.environ[DIRECTORIES] == "/large/disk"
    assert settings == {"spark.authenticate": "true"}
    assert os.environ[DIRECTORIES] == "/large/disk"
