"""How a program finds its brokers and logs in."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.model.errors import ConfigError
from odradek.spark import connection_options
from odradek.spark.options.option_table import Use
from odradek.spark.options.options import read_options


@pytest.fixture
def login(tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=ann\nsasl.password=x\ncompression.type=lz4\n"
    )
    file.chmod(0o600)
    return file


def test_options_are_those_of_the_file_that_the_variable_names(
    login: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(login))
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", "broker:9093")
    options = connection_options()
    assert options == {
        "kafka.bootstrap.servers": "broker:9093",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "ann",
        "kafka.sasl.password": "x",
    }
    assert read_options({**options, "subscribe": "t"}, Use.STREAM_READ).client["sasl.username"] == "ann"


def test_without_a_file_there_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("ODRADEK_CLIENT_CONFIG", "ODRADEK_BOOTSTRAP"):
        monkeypatch.delenv(variable, raising=False)
    assert connection_options() == {}


def test_a_file_with_a_password_that_others_may_read_is_refused(login: Path) -> None:
    login.chmod(0o644)
    with pytest.raises(ConfigError, match=f"{login}.*every user of this machine can read it"):
        connection_options(str(login))
