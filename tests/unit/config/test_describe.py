from __future__ import annotations

import pytest

from odradek.config.broker import BrokerConfig
from odradek.config.definition import SettingType
from odradek.config.describe import (
    DescribedSetting,
    Synonym,
    ValueSource,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from odradek.config.loading import load_broker_config, reconfigured


def load(**values: str) -> BrokerConfig:
    config, _ = load_broker_config({key.replace("_", "."): text for key, text in values.items()})
    return config


def of_topic(key: str, overrides: dict[str, str], broker: BrokerConfig) -> DescribedSetting:
    return next(entry for entry in describe_topic(overrides, broker) if entry.key == key)


def of_broker(key: str, broker: BrokerConfig) -> DescribedSetting:
    return next(entry for entry in describe_broker(broker) if entry.key == key)


def test_a_topics_setting_lists_all_of_its_unit_that_would_give_its_value_the_strongest_first() -> None:
    broker = reconfigured(load(log_retention_hours="2", log_retention_ms="66"), {"log.retention.ms": "77"})
    described = of_topic("retention.ms", {"retention.ms": " 5 "}, broker)
    assert described.value == "5"
    assert described.source is ValueSource.DYNAMIC_TOPIC
    assert described.synonyms == (
        Synonym(key="retention.ms", value="5", source=ValueSource.DYNAMIC_TOPIC),
        Synonym(key="log.retention.ms", value="77", source=ValueSource.DYNAMIC_DEFAULT_BROKER),
        Synonym(key="log.retention.ms", value="66", source=ValueSource.STATIC_BROKER),
    )
    assert (described.type, described.read_only, described.sensitive) == (SettingType.LONG, False, False)
    assert "how long" in described.documentation.lower()


def test_a_topic_takes_the_brokers_value_in_the_topics_unit() -> None:
    broker = load(log_retention_hours="2")
    described = of_topic("retention.ms", {}, broker)
    assert (described.value, described.source, described.synonyms) == ("7200000", ValueSource.DEFAULT, ())
    created = {setting.key: setting for setting in describe_topic({}, broker, older_names=True)}
    assert created["retention.ms"].source is ValueSource.STATIC_BROKER


def test_min_insync_replicas_is_a_dynamic_default_from_the_beginning() -> None:
    broker = load(min_insync_replicas="2")
    for described in (
        of_topic("min.insync.replicas", {}, broker),
        of_broker("min.insync.replicas", broker),
    ):
        assert (described.value, described.source) == ("2", ValueSource.DYNAMIC_DEFAULT_BROKER)
        assert [(synonym.value, synonym.source) for synonym in described.synonyms] == [
            ("2", ValueSource.DYNAMIC_DEFAULT_BROKER),
            ("2", ValueSource.STATIC_BROKER),
            ("1", ValueSource.DEFAULT),
        ]
    (of_all,) = describe_broker_defaults(broker)
    assert (of_all.key, of_all.value) == ("min.insync.replicas", "2")
    changed = reconfigured(broker, {"min.insync.replicas": "3"})
    assert of_topic("min.insync.replicas", {}, changed).value == "3"


def test_a_setting_that_no_one_set_comes_from_the_default() -> None:
    described = of_topic("segment.bytes", {}, load())
    assert (described.value, described.source) == ("1073741824", ValueSource.DEFAULT)


def test_settings_for_tests_are_not_described() -> None:
    assert "internal.segment.bytes" not in {entry.key for entry in describe_topic({}, load())}


def test_a_broker_describes_what_it_acts_upon_and_what_it_was_given() -> None:
    keys = [entry.key for entry in describe_broker(load(metric_reporters="Some"))]
    assert keys == sorted(keys)
    assert {"node.id", "log.retention.hours", "metric.reporters"} <= set(keys)
    assert "ssl.provider" not in keys
    assert of_broker("metric.reporters", load(metric_reporters="Some")).documentation.startswith(
        "Not supported"
    )


def test_a_brokers_setting_says_whether_a_running_broker_takes_another_value() -> None:
    assert of_broker("node.id", load()).read_only
    assert not of_broker("log.retention.ms", load()).read_only


@pytest.mark.check(47)
def test_passwords_are_never_shown() -> None:
    config, _ = load_broker_config({"ssl.key.password": "hunter2"})
    described = of_broker("ssl.key.password", config)
    assert described.sensitive
    assert described.value is None
    assert "hunter2" not in repr(described)


def test_what_no_one_knows_is_described_without_its_value() -> None:
    broker = reconfigured(load(), {"colour": "red"}, {"shape": "round"})
    for described in (
        of_broker("colour", broker),
        of_broker("shape", broker),
        *(
            broker_default
            for broker_default in describe_broker_defaults(broker)
            if broker_default.key == "colour"
        ),
    ):
        assert (described.type, described.value, described.sensitive) == (SettingType.UNKNOWN, None, True)
        assert [synonym.value for synonym in described.synonyms] == [None]
    assert of_broker("shape", broker).source is ValueSource.DYNAMIC_BROKER


def test_settings_of_kafka_without_effect_are_reported_as_a_topics_but_not_as_a_brokers_unless_they_are_set() -> (
    None
):
    key = "remote.copy.lag.ms"
    assert of_topic(key, {}, load()).value == "0"
    assert of_topic(key, {key: "7"}, load()).value == "7"
    assert of_broker(f"log.{key}", load(log_remote_copy_lag_ms="7")).value == "7"
    assert "group.coordinator.threads" not in {entry.key for entry in describe_broker(load())}


def test_a_brokers_default_of_a_topics_setting_is_reported_even_without_effect() -> None:
    assert of_broker("unclean.leader.election.enable", load()).value == "false"


@pytest.mark.parametrize(
    "written", [{}, {"node.id": "7"}, {"broker.id": "7"}, {"broker.id": "-1", "node.id": "7"}]
)
def test_the_older_name_of_the_id_has_the_actual_id(written: dict[str, str]) -> None:
    config, _ = load_broker_config(written)
    described = {setting.key: setting.value for setting in describe_broker(config)}
    assert described["broker.id"] == str(config.server.node_id)
