"""A topic that a broker created by itself, before the program that needs it did, is brought to what that program needs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek import Admin, Consumer, NewTopic, TopicPartition
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.ensured_topics import ensure_topic, ensure_topic_async
from odradek.client.admin.types import ConfigResource
from odradek.dead_letters.redrive import make_redrives_topic
from odradek.dead_letters.redriven import REDRIVES_TOPIC
from odradek.model.errors import ErrorCode, KafkaError
from odradek.pipelines.document import PIPELINES_TOPIC
from odradek.pipelines.status import STATUS_TOPIC
from odradek.pipelines.tables import make_topics
from odradek.spark.exactly_once.decision import DECISIONS_PARTITIONS, DECISIONS_TOPIC
from odradek.spark.exactly_once.driver import SinkDriver
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.testing import LocalBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(servers) as shared:
        yield shared


def ask_for(servers: str, topic: str) -> None:
    """Makes the broker create the topic with its own defaults, as a consumer that looks into it does."""
    with Consumer(servers, allow_auto_create_topics=True) as consumer:
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}


async def start_and_stop_server(servers: str) -> None:
    commands = CommandTopic(servers, "asked", {}, lambda offset, command: None)
    await commands.start()
    await commands.close()


SYNCHRONOUS: dict[str, tuple[Callable[[Admin], Any], int, str]] = {
    DECISIONS_TOPIC: (
        lambda admin: SinkDriver(admin, "s", transaction_timeout_s=60).begin(),
        DECISIONS_PARTITIONS,
        "delete",
    ),
    PIPELINES_TOPIC: (make_topics, 1, "compact"),
    STATUS_TOPIC: (make_topics, 1, "compact"),
    REDRIVES_TOPIC: (make_redrives_topic, 1, "compact"),
}


@pytest.mark.parametrize("topic", SYNCHRONOUS)
def test_programs_mend_topics_that_the_broker_created_by_itself(
    servers: str, admin: Admin, topic: str
) -> None:
    make, partitions, policy = SYNCHRONOUS[topic]
    with contextlib.suppress(KafkaError):
        admin.delete_topics([topic])
    ask_for(servers, topic)
    for _ in range(2):
        make(admin)
        assert len(admin.describe_topics([topic])[topic].partitions) == partitions
        resource = ConfigResource.topic(topic)
        assert admin.describe_configs([resource])[resource]["cleanup.policy"].value == policy


async def test_the_command_topic_of_a_sql_server_keeps_its_commands_for_ever(servers: str) -> None:
    topic = "_odradek-sql-asked-commands"
    resource = ConfigResource.topic(topic)
    async with AsyncAdmin(servers) as admin:
        await admin.create_topics([NewTopic(topic, 1)])
        assert (await admin.describe_configs([resource]))[resource]["retention.ms"].value == "604800000"
        await start_and_stop_server(servers)
        settings = (await admin.describe_configs([resource]))[resource]
        assert (settings["retention.ms"].value, settings["retention.bytes"].value) == ("-1", "-1")


async def test_what_a_person_has_set_on_the_topic_stays_with_a_warning(
    servers: str, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    admin.create_topics([NewTopic("set", 1, configs={"retention.ms": "5"})])
    wanted = NewTopic("set", 2, configs={"retention.ms": "-1", "retention.bytes": "7"})
    ensure_topic(admin, wanted)
    async with AsyncAdmin(servers) as other:
        await ensure_topic_async(other, wanted)
    resource = ConfigResource.topic("set")
    settings = admin.describe_configs([resource])[resource]
    assert (settings["retention.ms"].value, settings["retention.bytes"].value) == ("5", "7")
    assert len(admin.describe_topics(["set"])["set"].partitions) == 2
    lines = [
        record.getMessage() for record in caplog.records if "topic_is_set_otherwise" in record.getMessage()
    ]
    assert len(lines) == 2


class Refusing:
    """An admin client that is refused one call."""

    def __init__(self, admin: Admin, call: str, code: ErrorCode) -> None:
        self._admin = admin
        self._call = call
        self._code = code

    def __getattr__(self, name: str) -> Any:
        if name != self._call:
            return getattr(self._admin, name)

        def refuse(*_: Any, **__: Any) -> None:
            raise KafkaError(self._code, "no")

        return refuse


@pytest.mark.parametrize(
    ("call", "code", "problem"),
    [
        ("describe_configs", ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        ("alter_configs", ErrorCode.TOPIC_AUTHORIZATION_FAILED, None),
        ("create_partitions", ErrorCode.INVALID_PARTITIONS, None),
        ("describe_configs", ErrorCode.REQUEST_TIMED_OUT, "no"),
        ("alter_configs", ErrorCode.REQUEST_TIMED_OUT, "no"),
        (
            "create_partitions",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "topic 'refused.*' needs 3 partitions .*: no",
        ),
        ("describe_topics", ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"),
    ],
)
def test_what_may_not_be_done_is_a_warning_or_the_reason(
    admin: Admin, call: str, code: ErrorCode, problem: str | None
) -> None:
    topic = f"refused-{call}-{code.name}"
    admin.create_topics([NewTopic(topic, 1)])
    refusing: Any = Refusing(admin, call, code)
    wanted = NewTopic(topic, 3, configs={"cleanup.policy": "compact"})
    if problem is None:
        ensure_topic(refusing, wanted)
    else:
        with pytest.raises(KafkaError, match=problem) as refused:
            ensure_topic(refusing, wanted)
        assert refused.value.code is code
