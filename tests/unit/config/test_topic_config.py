from __future__ import annotations

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.config.topic import LogConfig, ineffective, topic_config
from odradek.model.errors import ErrorCode, KafkaError


def broker(**values: str) -> BrokerConfig:
    config, _ = load_broker_config({key.replace("_", "."): text for key, text in values.items()})
    return config


def test_a_topic_without_settings_has_kafkas_defaults() -> None:
    assert topic_config({}, BrokerConfig()) == LogConfig()


def test_the_broker_gives_what_the_topic_does_not_set() -> None:
    config = topic_config(
        {"segment.bytes": "2097152"}, broker(log_segment_bytes="4194304", message_max_bytes="99")
    )
    assert config.segment_bytes == 2097152
    assert config.max_message_bytes == 99


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_milliseconds_win_over_minutes_and_minutes_over_hours(
    given: dict[str, str], retention_ms: int
) -> None:
    config, _ = load_broker_config(given)
    assert topic_config({}, config).retention_ms == retention_ms


def test_hours_of_rolling_become_milliseconds() -> None:
    config = topic_config({}, broker(log_roll_hours="1", log_roll_jitter_hours="2"))
    assert (config.segment_ms, config.segment_jitter_ms) == (3_600_000, 7_200_000)


def test_the_flush_interval_falls_back_to_the_schedulers() -> None:
    assert topic_config({}, broker(log_flush_scheduler_interval_ms="7")).flush_ms == 7


def test_policies_form_a_set_and_may_be_none() -> None:
    assert topic_config(
        {"cleanup.policy": "compact, delete,delete"}, BrokerConfig()
    ).cleanup_policy == frozenset({"compact", "delete"})
    assert topic_config({"cleanup.policy": ""}, BrokerConfig()).cleanup_policy == frozenset()


def test_flushing_before_the_answer_is_on_and_can_be_switched_off_for_a_topic_or_all() -> None:
    assert topic_config({}, BrokerConfig()).flush_before_ack
    assert not topic_config({"flush.before.ack": "false"}, BrokerConfig()).flush_before_ack
    assert not topic_config({}, broker(log_flush_before_ack="false")).flush_before_ack


def test_a_segment_size_for_tests_goes_below_the_least_that_is_allowed() -> None:
    assert topic_config({"internal.segment.bytes": "100"}, BrokerConfig()).segment_bytes == 100


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            {"retention.ms": "-2"},
            "retention.ms='-2' is not allowed: expected a whole number of 64 bits, -1 or more",
        ),
        (
            {"compression.type": "none"},
            "compression.type='none' is not allowed: expected one of uncompressed, zstd",
        ),
        ({"retention.mss": "1"}, "Unknown topic config name: retention.mss; did you mean retention.ms?"),
        (
            {"leader.replication.throttled.replicas": "1:2,x"},
            "leader.replication.throttled.replicas='1:2,x' is not allowed: expected a list, separated by commas, * or pairs",
        ),
        (
            {"follower.replication.throttled.replicas": "*,1:2"},
            "expected a list, separated by commas, * or pairs",
        ),
        ({"colour": "red"}, "Unknown topic config name: colour"),
        ({"remote.storage.enable": "true"}, "there is no tiered storage"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "it is above max.compaction.lag.ms=4"),
    ],
)
def test_what_cannot_be_used_is_refused_with_kafkas_code(overrides: dict[str, str], words: str) -> None:
    with pytest.raises(KafkaError) as caught:
        topic_config(overrides, BrokerConfig())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert words in caught.value.message


def test_settings_without_effect_are_named() -> None:
    assert ineffective({"retention.ms": "1", "preallocate": "true", "cleanup.policy": "compact"}) == [
        "topic setting preallocate is not supported yet and has no effect",
    ]
