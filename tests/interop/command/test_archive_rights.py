"""`odradek archive` on a secured broker: a right that is missing is named in one line, and nothing is begun without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from odradek import Admin, NewTopic, Producer
from odradek.archive.checks.topic_side import BrokerTopics, LogExtent
from odradek.cli.main import main
from odradek.client.admin.users import NewPassword
from odradek.config.files.properties import format_properties
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.testing import LocalBroker

TOPIC, PASSWORD = "orders", "bob-secret"
Command = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalBroker, Path]]:
    """A broker with one filled topic and a user without rights; and the client settings of that user."""
    with LocalBroker(secure=True) as broker:
        settings = {**broker.client_settings, "bootstrap.servers": broker.address}
        with Admin.from_config(settings) as admin:
            admin.create_topics([NewTopic(TOPIC)])
            admin.alter_users(
                {"bob": NewPassword(password=PASSWORD, mechanism="SCRAM-SHA-512", iterations=4096)}
            )
        with Producer.from_config(settings) as producer:
            producer.send(TOPIC, b"1")
        file = tmp_path_factory.mktemp("rights") / "bob.properties"
        file.write_text(format_properties({**settings, "sasl.username": "bob", "sasl.password": PASSWORD}))
        file.chmod(0o600)
        yield broker, file


@pytest.fixture
def archive(
    secured: tuple[LocalBroker, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs a command of archives as the user; returns its exit code and its lines. No JVM may be needed to refuse it."""

    def no_session(*_: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("odradek.archive.run.spark_session", no_session)
    monkeypatch.setattr("odradek.spark.engine.java.find_java", lambda: SimpleNamespace(problem=None))

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["archive", *words, "--command-config", str(secured[1])])
        return code, capsys.readouterr().err

    return run


@pytest.fixture
def allowed(secured: tuple[LocalBroker, Path]) -> Callable[..., None]:
    def allow(verb: str, operation: str) -> None:
        root = {**secured[0].client_settings, "bootstrap.servers": secured[0].address}
        file = secured[1].with_name("root.properties")
        file.write_text(format_properties(root))
        file.chmod(0o600)
        assert main(["acl", verb, "bob", operation, f"topic:{TOPIC}", "--command-config", str(file)]) == 0

    return allow


def test_a_run_without_rights_names_the_one_that_is_missing_and_makes_no_archive(
    archive: Command, allowed: Callable[..., None], tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    code, error = archive("run", str(place), "--topic", TOPIC, "--once")
    assert (code, error.count("\n")) == (1, 1)
    assert (
        "TOPIC_AUTHORIZATION_FAILED: orders: not authorised for the topic: this user needs the right DESCRIBE"
        in error
    )
    allowed("add", "describe")
    try:
        for which in (("--topic", TOPIC), ("--pattern", "ord.*")):
            code, error = archive("run", str(place), *which, "--once")
            assert (code, error.count("\n")) == (1, 1)
            assert "this user needs the right READ on the topic" in error
    finally:
        allowed("remove", "describe")
    assert not place.exists()


def test_checks_of_an_archive_name_the_right_that_is_missing(
    secured: tuple[LocalBroker, Path], allowed: Callable[..., None]
) -> None:
    broker, _ = secured
    bob = {**broker.client_settings, "sasl.username": "bob", "sasl.password": PASSWORD}
    topics, only = BrokerTopics(broker.address, bob), TopicPartition(TOPIC, 0)
    refused: dict[str, Callable[[], object]] = {
        "DESCRIBE": lambda: topics.extents([only]),
        "DESCRIBE_CONFIGS": lambda: topics.is_compacted(TOPIC),
        "READ": lambda: topics.offsets(only, LogExtent(start=0, end=1), committed=True),
    }
    for right, ask in refused.items():
        if right == "READ":
            allowed("add", "describe")
        with pytest.raises(KafkaError, match=f"this user needs the right {right} on the topic") as caught:
            ask()
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allowed("remove", "describe")
    assert topics.check_rights((), "ord.*") == []
    allowed("add", "read")
    try:
        assert topics.check_rights([TOPIC], None) == topics.check_rights((), "ord.*") == [TOPIC]
    finally:
        allowed("remove", "read")
