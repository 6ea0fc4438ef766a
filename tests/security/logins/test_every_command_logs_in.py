"""Each command that takes `--command-config` connects as that file says, with all clients that it makes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from odradek import Producer
from odradek.cli.main import cli
from odradek.client.network.connections import BrokerConnections
from odradek.client.settings.security_settings import SecuritySettings
from odradek.config.files.properties import format_properties
from odradek.model.errors import OdradekError
from odradek.testing import LocalBroker

USER, PASSWORD = "ann", "the-secret-of-ann"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": USER,
    "sasl.password": PASSWORD,
}
JAAS = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
WORDS = {
    "partitions": "2",
    "operation": "read",
    "operations": "read",
    "resource": "topic:t",
    "limits": "producer_byte_rate=1024",
    "settings": "retention.ms=1000",
    "brokers": "1",
    "broker": "1",
    "place": "t:0:0",
}
"""What the arguments of that name may be; others are names."""
OPTIONS = {
    ("group", "reset-offsets"): ["--topic", "t", "--to-earliest", "--execute"],
    ("group", "delete-offsets"): ["--topic", "t"],
    ("group", "remove-members"): ["--all"],
    ("txn", "abort"): ["--topic", "t", "--partition", "0", "--start-offset", "0"],
    ("quota", "set"): ["--user", "x"],
    ("quota", "delete"): ["--user", "x"],
    ("config", "show"): ["--topic", "t"],
    ("config", "set"): ["--topic", "t"],
    ("config", "unset"): ["--topic", "t"],
    ("client-metrics", "alter"): ["--interval", "1000"],
    ("topic", "alter"): ["--partitions", "2"],
    ("user", "add"): ["--generate"],
    ("pipeline", "state", "export"): ["--to", "out"],
    ("pipeline", "upgrade"): ["--mode", "keep"],
}
OF_SPARK = {("archive", "run"), ("archive", "status"), ("archive", "verify")}
"""They read an archive first, by Spark; `tests/spark/test_archive.py` logs in with them."""
OF_USERS = {("console",)}
"""It connects when a user has logged in; `tests/scenarios/console` logs in with it."""


class Stopped(OdradekError):
    """The first client has been made; what it does is not of interest."""


def commands(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            below = command.get_command(click.Context(command), name)
            assert below is not None
            yield from commands(below, (*path, name))
    else:
        yield path, command


TAKING = {
    path: command
    for path, command in commands()
    if any(parameter.name == "command_config" for parameter in command.params)
}


@pytest.fixture(scope="module")
def listening() -> Iterator[str]:
    """Something accepts connections there, so commands do not give up before they make a client."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "client.properties"
    file.write_text(format_properties(LOGIN))
    file.chmod(0o600)
    return str(file)


def test_the_list_of_commands_is_not_empty() -> None:
    assert {
        ("dlq", "list"),
        ("dlq", "redrive"),
        ("table", "get"),
        ("table", "serve"),
        ("topic", "list"),
    } <= TAKING.keys()
    assert len(TAKING) > 40


@pytest.mark.parametrize("path", sorted(TAKING.keys() - OF_SPARK - OF_USERS), ids=" ".join)
def test_the_first_client_of_a_command_has_the_login(
    path: tuple[str, ...], listening: str, config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[SecuritySettings] = []

    def note(_: Any, settings: SecuritySettings, *__: Any) -> None:
        made.append(settings)
        raise Stopped

    monkeypatch.setattr(BrokerConnections, "__init__", note)
    monkeypatch.chdir(tmp_path)
    Path("t").touch()  # a file, where a command wants one
    words = [*path, *OPTIONS.get(path, [])]
    words += [
        "t-0" if path == ("cluster", "elect") else WORDS.get(parameter.name or "", "t")
        for parameter in TAKING[path].params
        if isinstance(parameter, click.Argument) and (parameter.required or parameter.name == "operator")
    ]
    words += ["--bootstrap", listening, "--command-config", config]
    run = CliRunner().invoke(cli, words, input="y\n")
    assert made, (words, run.output, run.exception)
    assert {
        (settings.security_protocol, settings.sasl_username, settings.sasl_password) for settings in made
    } == {("SASL_PLAINTEXT", USER, PASSWORD)}


def test_commands_with_several_clients_log_in_with_each(tmp_path: Path) -> None:
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "odradek.scram.first.users": f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]",
        "sasl.jaas.config": JAAS,
    }
    with LocalBroker(settings) as broker:
        file = tmp_path / "client.properties"
        file.write_text(format_properties({"bootstrap.servers": broker.address, **LOGIN}))
        file.chmod(0o600)

        def run(*words: str) -> str:
            ended = CliRunner().invoke(cli, [*words, "--command-config", str(file)])
            assert ended.exit_code == 0, (words, ended.output, ended.exception)
            return ended.output

        run("topic", "create", "orders.dlq")
        run("topic", "create", "orders")
        with Producer.from_config({"bootstrap.servers": broker.address, **LOGIN}) as producer:
            headers = [("__connect.errors.topic", b"orders"), ("__connect.errors.partition", b"0")]
            headers.append(("__connect.errors.offset", b"0"))
            producer.send("orders.dlq", b"{}", key=b"k", headers=headers)
            producer.send("orders", b'{"n": 1}', key=b"k")
        assert "orders.dlq" in run("dlq", "list", "orders.dlq")
        assert "orders" in run("dlq", "show", "orders.dlq")
        assert "1" in run("dlq", "redrive", "orders.dlq", "--to", "orders", "--yes")
        assert "{" in run("table", "get", "orders", "k")
