"""A policy says what it means, in Python and from a file, and refuses what makes no sense."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.dead_letters.headers import FailedConsumer, Origin, RecordFailure, letter_headers
from odradek.model.errors import ConfigError, KafkaError
from odradek.retry import AsyncRetryConsumer, Reject, RetryConsumer, RetryMode, RetryPolicy
from odradek.retry.clients import client_configs, given_config
from odradek.retry.handlers import check_handler, check_outputs
from odradek.retry.policy import delay_ms
from odradek.retry.routing import Output, Routing
from odradek.retry.topics import HEADER_ROOM_BYTES, NarrowTopic, missing_topics, narrow_topics


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000), ("1d", 86_400_000)]
)
def test_delays(text: str, ms: int) -> None:
    assert delay_ms(text) == ms


def test_a_policy_from_a_file_is_the_one_from_python() -> None:
    config = {
        "retry.delays": "1s, 10s",
        "retry.mode": "blocking",
        "retry.exclude": "ValueError,json.decoder.JSONDecodeError",
        "retry.topic.name": "{topic}-retry-{index}",
        "retry.topics.create": "false",
        "errors.deadletterqueue.topic.name": "{topic}-dlt",
        "errors.deadletterqueue.topic.retention.ms": "86400000",
        "delivery": "exactly_once",
    }
    assert RetryPolicy.from_config(config) == RetryPolicy(
        delays=("1s", "10s"),
        mode=RetryMode.BLOCKING,
        not_retried=("ValueError", "json.decoder.JSONDecodeError"),
        retry_topic="{topic}-retry-{index}",
        creating_topics=False,
        dead_letter_topic="{topic}-dlt",
        dead_letter_retention_ms=86_400_000,
        exactly_once=True,
    )
    assert RetryPolicy.from_config({}) == RetryPolicy()
    assert RetryPolicy.from_config({"retry.delays": ["5s"]}).delays == ("5s",)


@pytest.mark.parametrize("mode", list(RetryMode))
def test_a_mode_may_be_its_text(mode: RetryMode) -> None:
    text: Any = str(mode.value)
    policy = RetryPolicy(mode=text)
    assert policy.mode is mode
    assert bool(Routing(policy, "g", ["orders"]).retry_topics) is (mode is RetryMode.NON_BLOCKING)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "parallel"}, "retry.mode='parallel' is not allowed: expected non-blocking or blocking"),
        ({"delays": "10s"}, "retry.delays='10s' is one text"),
        ({"not_retried": "ValueError"}, "retry.exclude='ValueError' is one text"),
    ],
)
def test_a_policy_with_values_of_another_kind_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RetryPolicy(**fields)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"retry.delays": "soon"}, "'soon' is no delay"),
        ({"retry.mode": "parallel"}, "non-blocking or blocking"),
        ({"delivery": "twice"}, "at_least_once or exactly_once"),
        ({"retry.topics.create": "maybe"}, "true or false"),
        ({"retry.topic.name": "{topic}-retry"}, "one topic for several delays"),
        ({"retry.topic.name": "{topic}-{when}"}, "there is no field {when}"),
        ({"errors.deadletterqueue.topic.name": "{"}, "is no template"),
        ({"errors.deadletterqueue.topic.retention.ms": "long"}, "no number"),
        ({"errors.deadletterqueue.topic.retention.ms": "-2"}, "retention.ms=-2 is below -1"),
        ({"retry.delay": "1s"}, "unknown setting 'retry.delay'"),
    ],
)
def test_what_makes_no_sense_is_refused(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RetryPolicy.from_config(config)


def test_names_that_kafka_does_not_allow_are_refused_with_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"retry\.topic\.name=.*may hold only"):
        Routing(RetryPolicy(), "bill ing", ["orders"])
    with pytest.raises(ConfigError, match="cannot be read and be given what failed"):
        Routing(RetryPolicy(dead_letter_topic="{topic}"), "billing", ["orders"])
    with pytest.raises(ConfigError, match="has no meaning here"):
        Routing(RetryPolicy(dead_letter_topic="{topic}-{delay}"), "billing", ["orders"])
    with pytest.raises(ConfigError, match="there is no topic to read"):
        Routing(RetryPolicy(), "billing", [])


class DownError(ConnectionError):
    pass


@pytest.mark.parametrize(
    ("excluded", "error", "retried"),
    [
        ((), ValueError(), True),
        (("ValueError",), ValueError(), False),
        (("ValueError",), json.JSONDecodeError("", "", 0), False),
        (("json.decoder.JSONDecodeError",), json.JSONDecodeError("", "", 0), False),
        (("JSONDecodeError",), ValueError(), True),
        (("OSError",), DownError(), False),
        (("Error",), DownError(), True),
        ((), Reject("no"), False),
    ],
)
def test_some_errors_are_not_worth_another_try(
    excluded: tuple[str, ...], error: Exception, retried: bool
) -> None:
    assert RetryPolicy(not_retried=excluded).retries(error) is retried


def test_missing_topics_get_as_many_partitions_as_the_topic_has() -> None:
    policy = RetryPolicy(delays=("1s", "9d"))
    routing = Routing(policy, "billing", ["orders", "payments"])
    there = {"orders": 3, "payments": 1, "orders.billing.retry-1s": 5}
    kept = {"retention.ms": str((9 + 7) * 86_400_000)}
    made = {
        topic.name: (topic.partitions, dict(topic.configs))
        for topic in missing_topics(routing, policy, there, {})
    }
    assert made == {
        "orders.billing.retry-9d": (3, kept),
        "orders.billing.dlq": (3, {"retention.ms": "-1"}),
        "payments.billing.retry-1s": (1, kept),
        "payments.billing.retry-9d": (1, kept),
        "payments.billing.dlq": (1, {"retention.ms": "-1"}),
    }


def test_shared_topics_are_made_once_and_for_the_largest() -> None:
    policy = RetryPolicy(delays=("1s",), retry_topic="{group}-retry", dead_letter_topic="{group}-dlq")
    routing = Routing(policy, "billing", ["orders", "payments"])
    made = missing_topics(routing, policy, {"orders": 2, "payments": 4}, {})
    assert [(topic.name, topic.partitions) for topic in made] == [("billing-retry", 4), ("billing-dlq", 4)]


def test_topics_that_are_made_take_the_largest_record_of_their_sources_with_its_headers() -> None:
    policy = RetryPolicy(delays=("1s",), dead_letter_topic="{group}-dlq")
    routing = Routing(policy, "billing", ["orders", "payments"])
    counts = {"orders": 1, "payments": 1}
    made = missing_topics(routing, policy, counts, {"orders": 5_000_000, "payments": 2**31 - 1})
    limits = {topic.name: topic.configs["max.message.bytes"] for topic in made}
    assert limits == {
        "orders.billing.retry-1s": str(5_000_000 + HEADER_ROOM_BYTES),
        "payments.billing.retry-1s": str(2**31 - 1),
        "billing-dlq": str(2**31 - 1),
    }
    record = RecordFailure(exception="E" * 1_000, message="\ud800" * 9_999, stacktrace="\ud800" * 9_999)
    origin = Origin(topic="t" * 249, partition=2**31 - 1, offset=2**63 - 1, timestamp_ms=2**62)
    headers = letter_headers((), origin, record, FailedConsumer(group="g" * 255), retry_at_ms=2**62)
    assert sum(len(name) + len(value or b"") + 10 for name, value in headers) < HEADER_ROOM_BYTES


def test_topics_that_take_less_than_their_source_are_named() -> None:
    routing = Routing(RetryPolicy(delays=("1s",)), "billing", ["orders"])
    retry, dead = "orders.billing.retry-1s", "orders.billing.dlq"
    limits = {"orders": 5_000_000, retry: 5_000_000, dead: 1_048_588}
    assert narrow_topics(routing, limits) == [
        NarrowTopic(topic=dead, byte_limit=1_048_588, source="orders", source_byte_limit=5_000_000)
    ]
    assert narrow_topics(routing, {dead: 1}) == []


def test_topics_that_may_not_be_made_are_named() -> None:
    policy = RetryPolicy(creating_topics=False, delays=())
    routing = Routing(policy, "billing", ["orders"])
    with pytest.raises(ConfigError, match=r"there is no topic orders\.billing\.dlq"):
        missing_topics(routing, policy, {"orders": 1}, {})
    with pytest.raises(ConfigError, match="there is no topic orders:"):
        missing_topics(routing, policy, {}, {})


def test_all_settings_come_from_one_mapping() -> None:
    given = given_config(
        {
            "bootstrap.servers": "h:1",
            "topics": "orders, payments",
            "group.id": "billing",
            "max.poll.records": "50",
            "producer.compression.type": "zstd",
            "retry.delays": "1s",
            "delivery": "exactly_once",
            "transactional.id": "billing-1",
        }
    )
    assert (given.bootstrap_servers, given.topics) == ("h:1", ("orders", "payments"))
    configs = client_configs(given.policy, given.consumer, given.producer, given.transactional_id)
    assert configs.producer["transactional_id"] == "billing-1"
    assert configs.producer["compression_type"] == "zstd"
    assert configs.consumer["isolation_level"] == "read_committed"
    assert configs.consumer["enable_auto_commit"] is False
    assert configs.longest_turn_s == 150


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"topics": "orders", "bootstrap.servers": "h:1"}, "set group_id"),
        ({"topics": "orders", "group.id": "g"}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "h:1", "group.id": "g"}, "no topic to read"),
        ({"enable.auto.commit": "true"}, "enable_auto_commit"),
        ({"delivery": "exactly_once", "isolation.level": "read_uncommitted"}, "read_committed"),
        ({"transactional.id": "t"}, "only of use with delivery=exactly_once"),
        ({"retry.deleys": "1s"}, "retry.deleys"),
        ({"producer.lingerms": "1"}, "lingerms"),
        ({"max.poll.interval.ms": "soon"}, "max.poll.interval.ms='soon' is no number"),
        (
            {"producer.bootstrap.servers": "other:1"},
            "producer.bootstrap.servers='other:1': .* in the cluster of the topics that are read",
        ),
        ({"bootstrap.servers": "h:1", "group.id": "g", "topics": None}, "topics=None is no list"),
    ],
)
def test_a_mapping_that_cannot_be_is_refused(config: dict[str, Any], message: str) -> None:
    base = {"bootstrap.servers": "h:1", "topics": "orders", "group.id": "g"}
    with pytest.raises(ConfigError, match=message):
        RetryConsumer.from_config(config if "topics" in config or "group.id" in config else base | config)


async def asynchronous(_: Any) -> None: ...


def plain(_: Any) -> None: ...


async def generating(_: Any) -> Any:
    yield Output(topic="t")


class CallableObject:
    async def __call__(self, _: Any) -> None: ...


def test_a_function_of_the_wrong_kind_is_refused_before_any_record_fails() -> None:
    check_handler(asynchronous, is_async=True)
    check_handler(CallableObject(), is_async=True)
    check_handler(plain, is_async=False)
    check_handler(print, is_async=False)
    for handler, is_async in (
        (plain, True),
        (asynchronous, False),
        (CallableObject(), False),
        (generating, True),
    ):
        with pytest.raises(TypeError):
            check_handler(handler, is_async=is_async)


def test_a_handler_returns_outputs_or_nothing() -> None:
    check_outputs([Output(topic="t", value=b"x")], plain)
    with pytest.raises(TypeError, match="plain returned str"):
        check_outputs("abc", plain)


def test_both_faces_have_the_same_names() -> None:
    def names(kind: type) -> set[str]:
        return {name for name in vars(kind) if not name.startswith("_")}

    assert names(RetryConsumer) == names(AsyncRetryConsumer)
    assert issubclass(KafkaError, Exception)
