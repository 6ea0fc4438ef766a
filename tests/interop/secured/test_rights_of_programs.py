"""Our own programs on a broker that asks who they are, each with the rules that docs/authorization.md names and no more."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.interop.command.test_pipelines import Supervising
from tests.kit.waiting import eventually
from tests.unit.sql.running_server import sql_server

from odradek.cli.main import cli
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin.users import NewPassword
from odradek.client.settings.settings import AdminSettings
from odradek.config.files.properties import format_properties
from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.model.ids import TopicPartition
from odradek.retry import RetryConsumer, RetryPolicy
from odradek.sql.server.topics.processing_log import ProcessingLogTerms
from odradek.testing import LocalBroker

PAGE = Path(__file__).parents[3] / "docs" / "authorization.md"
USERS = ("pat", "sam", "rod", "sue", "ray")
"""Whose rules the page has: of pipelines' people, their supervisor, a redrive, an SQL server, a retry consumer."""
LETTER = letter_headers(
    [],
    Origin(topic="orders", partition=0, offset=0, timestamp_ms=1),
    RecordFailure(exception="KeyError", message="no"),
    FailedConsumer(group="billing"),
)
TOPICS = ("orders", "orders.dlq", "payments", "numbers")


def commands(user: str) -> list[list[str]]:
    """The words after `odradek` of each rule on the page."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [
        shlex.split(line, comments=True)[1:] for line in lines if line.startswith(f"odradek acl add {user} ")
    ]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    directory = tmp_path_factory.mktemp("rights")
    with LocalBroker(secure=True, data=directory / "data") as broker:
        file = directory / "admin.properties"
        file.write_text(format_properties(broker.client_settings))
        file.chmod(0o600)
        with Admin.from_config({"bootstrap.servers": broker.address, **broker.client_settings}) as admin:
            admin.create_topics([NewTopic(name, 1) for name in TOPICS])
            admin.alter_users({user: NewPassword(password="knows it") for user in USERS})
        for user in USERS:
            assert commands(user), f"the page has no rule for {user}"
            for words in commands(user):
                added = CliRunner().invoke(cli, [*words, "-b", broker.address, "--command-config", str(file)])
                assert added.exit_code == 0, added.output
        yield broker


class Person:
    """One of the users: settings of its clients, and commands that it gives."""

    def __init__(self, broker: LocalBroker, user: str, directory: Path) -> None:
        self.address = broker.address
        self.settings = {**broker.client_settings, "sasl.username": user, "sasl.password": "knows it"}
        arguments = AdminSettings.arguments({"bootstrap.servers": "", **self.settings})
        self.arguments: dict[str, Any] = {
            name: value for name, value in arguments.items() if name != "bootstrap_servers"
        }
        self._file = directory / f"{user}.properties"
        self._file.write_text(format_properties(self.settings))
        self._file.chmod(0o600)

    def run(self, *words: str) -> str:
        reach = ("-b", self.address, "--command-config", str(self._file))
        done = CliRunner().invoke(cli, [*words[:2], *reach, *words[2:]])
        assert done.exit_code == 0, done.output
        return done.stdout


@pytest.fixture
def person(broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Person]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data-home"))
    return lambda user: Person(broker, user, tmp_path)


def read(broker: LocalBroker, topic: str) -> list[bytes | None]:
    with Consumer.from_config(
        {"bootstrap.servers": broker.address, "isolation.level": "read_committed", **broker.client_settings}
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        return [record.value for record in consumer.poll(5.0)]


def test_pipelines_are_made_changed_and_supervised(person: Callable[[str], Person], tmp_path: Path) -> None:
    pat, sam = person("pat"), person("sam")
    program = tmp_path / "program.py"
    program.touch()
    assert json.loads(pat.run("pipeline", "list", "--json")) == []
    pat.run("pipeline", "run", str(program), "--name", "totals", "--", "run")
    supervisor = Supervising(sam.address, tmp_path / "state", "sam", **sam.arguments)

    def phase() -> str | None:
        [pipeline] = json.loads(pat.run("pipeline", "list", "--json"))
        return pipeline["status"] and str(pipeline["status"]["phase"])

    try:
        eventually(lambda: phase() == "running")
        assert "totals" in pat.run("pipeline", "describe", "totals")
        pat.run("pipeline", "logs", "totals")
        pat.run("pipeline", "stop", "totals")
        eventually(lambda: phase() == "stopped")
        pat.run("pipeline", "delete", "totals", "--yes")
        eventually(lambda: json.loads(pat.run("pipeline", "list", "--json")) == [])
    finally:
        supervisor.stop()


def test_letters_are_shown_and_sent_back(person: Callable[[str], Person], broker: LocalBroker) -> None:
    rod = person("rod")
    with Producer.from_config({"bootstrap.servers": broker.address, **broker.client_settings}) as producer:
        producer.send("orders.dlq", b"letter", headers=LETTER)
    rod.run("dlq", "list", "orders.dlq")
    rod.run("dlq", "show", "orders.dlq")
    rod.run("dlq", "redrive", "orders.dlq")
    assert read(broker, "orders") == [b"letter"]


def test_an_sql_server_reads_and_writes(person: Callable[[str], Person], tmp_path: Path) -> None:
    sue = person("sue")
    log = ProcessingLogTerms()
    with sql_server(
        sue.address, "shop", tmp_path / "sql", settings=sue.settings, processing_log=log
    ) as client:
        assert client.execute("SHOW STREAMS;")[0]["streams"][0]["topic"] == "shop_ksql_processing_log"
        client.execute("CREATE STREAM numbers (n INT) WITH (KAFKA_TOPIC='numbers', VALUE_FORMAT='JSON');")
        client.execute("INSERT INTO numbers VALUES (7); SHOW STREAMS; SHOW TOPICS; DESCRIBE numbers;")
        with client.query("SELECT n FROM numbers;") as query:
            assert list(query) == [[7]]
        client.execute("DROP STREAM numbers;")


def test_a_consumer_tries_again_and_gives_up(person: Callable[[str], Person], broker: LocalBroker) -> None:
    ray = person("ray")
    with Producer.from_config({"bootstrap.servers": broker.address, **broker.client_settings}) as producer:
        producer.send("payments", b"bad")

    def fail(_: Any) -> None:
        raise ValueError("no")

    policy = RetryPolicy(delays=("10ms",))
    with RetryConsumer(
        ray.address, ["payments"], group_id="billing", policy=policy, **ray.arguments
    ) as consumer:
        while not consumer.counts["dead_lettered"]:
            consumer.handle_some(fail, 0.2)
    assert read(broker, "payments.billing.dlq") == [b"bad"]
