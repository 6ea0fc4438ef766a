"""kafka-python, and our own command, administer a broker: what has no place in the tests of topics and groups.

Runs against Apache Kafka, too (`--server kafka`), which is how the expectations were checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.interop import logins
from tests.interop.server import Server

from odradek.cli.main import main

kafka = pytest.importorskip("kafka")


@pytest.fixture
def pure(bootstrap: str) -> Iterator[Any]:
    made = kafka.KafkaAdminClient(**logins.kafka_python(bootstrap))
    try:
        yield made
    finally:
        made.close()


def test_the_quorum_has_a_leader_and_one_voter(pure: Any) -> None:
    quorum = pure.describe_metadata_quorum()
    state = quorum["topics"][0]["partitions"][0]
    assert (state["leader_id"], [entry["replica_id"] for entry in state["current_voters"]]) == (1, [1])
    assert state["high_watermark"] > 0
    assert [node["node_id"] for node in quorum["nodes"]] == [1]


def test_features_are_described(pure: Any) -> None:
    features = pure.describe_features()
    assert features["transaction.version"]["finalized"] == (2, 2)
    assert features["group.version"]["supported"] == (0, 1)


def test_what_has_settings_is_listed(pure: Any, topic: Callable[..., str]) -> None:
    name = topic()
    listed = pure.list_config_resources()
    assert name in listed["topic"]
    assert "1" in listed["broker"]
    assert "1" in listed["broker_logger"]


def test_a_reassignment_to_a_broker_that_is_not_there_is_refused(
    pure: Any, topic: Callable[..., str]
) -> None:
    partition = kafka.TopicPartition(topic(), 0)
    refused = pure.alter_partition_reassignments({partition: [5]})[partition]
    assert refused.__name__ == "InvalidReplicationAssignmentError"
    assert pure.list_partition_reassignments() == {}


def test_a_leader_that_leads_needs_no_election(pure: Any, topic: Callable[..., str]) -> None:
    elect_leaders = pure.elect_leaders(0, {topic(): [0]}, raise_errors=False)
    assert "error_code=84" in repr(elect_leaders)


def test_users_have_scram_credentials_where_they_log_in(pure: Any, bootstrap: str) -> None:
    users = {"admin", "visitor"} if logins.lock_of(bootstrap) else set()
    assert set(pure.describe_user_scram_credentials()) == users


# -- our own command


@pytest.fixture
def run(
    bootstrap: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs one command in this process; what it printed."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", bootstrap)
    if lock := logins.lock_of(bootstrap):
        monkeypatch.setenv("ODRADEK_CLIENT_CONFIG", str(lock.java_file))

    def run_command(*words: str, code: int = 0) -> str:
        left = main(words)
        out, error = capfd.readouterr()
        assert left == code, error
        return out if code == 0 else error

    return run_command


def test_quotas_are_set_listed_and_deleted(run: Callable[..., str], server: Server) -> None:
    whom = ("--user", "cli", "--any-client")
    run("quota", "set", "producer_byte_rate=1048576", "request_percentage=12.5", *whom)
    listed: list[dict[str, Any]] = []

    def is_listed() -> bool:
        listed[:] = json.loads(run("quota", "list", "--user", "cli", "--json"))
        return len(listed) == 2

    server.eventually(is_listed)
    assert {row["quota"]: row["value"] for row in listed} == {
        "producer_byte_rate": 1048576.0,
        "request_percentage": 12.5,
    }
    assert {(row["user"], row["client_id"], row["ip"]) for row in listed} == {("cli", "", None)}
    assert "any other" in run("quota", "list")
    run("quota", "delete", *whom)
    server.eventually(lambda: "There are no quotas." in run("quota", "list", "--user", "cli"))


@pytest.mark.usefixtures("run")
def test_a_large_quota_is_written_in_digits(capfd: pytest.CaptureFixture[str]) -> None:
    whom = ("--client", "writes-digits")
    assert main(("quota", "set", "producer_byte_rate=12345678", "request_percentage=12.5", *whom)) == 0
    assert "producer_byte_rate=12345678, request_percentage=12.5" in capfd.readouterr().err
    assert main(("quota", "delete", *whom)) == 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("set", "producer_byte_rate=1"), "name who"),
        (("set", "producer_byte_rat=1", "--user", "u"), "did you mean producer_byte_rate"),
        (("set", "producer_byte_rate=lots", "--user", "u"), "expected a number"),
        (("set", "producer_byte_rate=1", "--user", "u", "--any-user"), "exclude each other"),
        (("delete", "nosuch", "--user", "u"), "there is no quota"),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_in_words(
    run: Callable[..., str], words: tuple[str, ...], reason: str
) -> None:
    assert reason in run("quota", *words, code=2)


def test_a_quota_that_the_broker_refuses_is_said(run: Callable[..., str]) -> None:
    assert "greater than 0" in run("quota", "set", "producer_byte_rate=0", "--user", "u", code=1)


def test_settings_of_groups_and_loggers_are_changed(run: Callable[..., str], server: Server) -> None:
    run("config", "set", "consumer.session.timeout.ms=50000", "--group", "cli-group")
    server.eventually(
        lambda: (
            {"key": "consumer.session.timeout.ms", "value": "50000", "from": "group"}
            in json.loads(run("config", "show", "--group", "cli-group", "--json"))
        )
    )
    run("config", "unset", "consumer.session.timeout.ms", "--group", "cli-group")
    levels = json.loads(run("config", "show", "--loggers", "1", "--json"))
    assert {row["from"] for row in levels} == {"dynamic broker logger"}
    assert "name one of" in run("config", "show", "--group", "g", "--topic", "t", code=2)


def test_a_producer_over_its_quota_hears_of_it_and_loses_nothing(
    bootstrap: str, topic: Callable[..., str], server: Server, run: Callable[..., str]
) -> None:
    confluent = pytest.importorskip("confluent_kafka")
    name, answers, delivered = topic(), [], []
    run("quota", "set", "producer_byte_rate=100000", "--client", "throttled")
    server.eventually(lambda: "throttled" in run("quota", "list"))
    producer = confluent.Producer(
        {
            **logins.librdkafka(bootstrap),
            "client.id": "throttled",
            "throttle_cb": lambda event: answers.append(event.throttle_time),
            "batch.num.messages": 10,
        }
    )
    for number in range(60):
        producer.produce(name, bytes(20_000), on_delivery=lambda error, _: delivered.append(error))
        producer.poll(0)
        if number % 10 == 9:
            producer.flush(30)
    assert producer.flush(30) == 0
    assert delivered == [None] * 60
    assert max(answers) > 0
    run("quota", "delete", "--client", "throttled")
