"""Client settings: Kafka's names, defaults and meaning; nothing unknown is accepted."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from odradek.client.settings.address import Address, parse_bootstrap
from odradek.client.settings.options import (
    AdminOptions,
    ConsumerOptions,
    ProducerOptions,
    ShareConsumerOptions,
)
from odradek.client.settings.settings import (
    AdminSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from odradek.model.errors import ConfigError

HERE = "127.0.0.1:9092"


def producer(**given: Any) -> ProducerSettings:
    return ProducerSettings.of(HERE, given)


def test_defaults_are_those_of_kafka() -> None:
    settings = producer()
    assert (settings.acks, settings.enable_idempotence, settings.linger_ms) == (-1, True, 5)
    assert (settings.batch_size, settings.buffer_memory) == (16_384, 33_554_432)
    assert settings.delivery_timeout_ms == 120_000
    consumer = ConsumerSettings.of(HERE, {})
    assert (consumer.auto_offset_reset, consumer.max_poll_records, consumer.fetch_max_wait_ms) == (
        "latest",
        500,
        500,
    )


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (ProducerOptions, ProducerSettings),
        (ConsumerOptions, ConsumerSettings),
        (AdminOptions, AdminSettings),
        (ShareConsumerOptions, ShareConsumerSettings),
    ],
)
def test_typed_keyword_arguments_name_exactly_the_settings(options: Any, settings: Any) -> None:
    assert set(get_type_hints(options)) == set(settings.settings)


def test_kafkas_spelling_and_text_values_mean_the_same_as_keyword_arguments() -> None:
    arguments = ProducerSettings.arguments(
        {"bootstrap.servers": HERE, "linger.ms": "20", "enable.idempotence": "false", "acks": "1"}
    )
    servers = arguments.pop("bootstrap_servers")
    assert ProducerSettings.of(servers, arguments) == producer(linger_ms=20, enable_idempotence=False, acks=1)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("linger.sm", "did you mean 'linger.ms'?"),
        ("compresion.type", "did you mean 'compression.type'?"),
        ("group.id", "unknown producer setting"),
        ("key.serializer", "pass key_serializer="),
        ("no.such.thing.at.all", "unknown producer setting 'no.such.thing.at.all'"),
    ],
)
def test_an_unknown_setting_is_refused_with_a_hint(key: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerSettings.arguments({"bootstrap.servers": HERE, key: "1"})
    assert words in str(caught.value)


def test_an_unknown_keyword_argument_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        producer(linger=5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("linger_ms", -1),
        ("linger_ms", "soon"),
        ("linger_ms", 1.5),
        ("linger_ms", True),
        ("acks", 2),
        ("acks", "some"),
        ("compression_type", "brotli"),
        ("enable_idempotence", "maybe"),
        ("security_protocol", "TLS"),
        ("max_in_flight_requests_per_connection", 0),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "[._]")):
        producer(**{name: value})


@pytest.mark.parametrize(
    "given", [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}]
)
def test_what_idempotence_cannot_do_turns_its_default_off_and_contradicts_an_explicit_true(
    given: dict[str, Any],
) -> None:
    assert not producer(**given).enable_idempotence
    with pytest.raises(ConfigError, match=r"enable\.idempotence=true needs"):
        producer(enable_idempotence=True, **given)


def test_acks_all_has_two_spellings() -> None:
    assert producer(acks="all").acks == producer(acks="-1").acks == producer(acks=-1).acks == -1


def test_a_delivery_timeout_below_linger_and_request_timeout_is_refused_or_raised_if_it_is_a_default() -> (
    None
):
    with pytest.raises(ConfigError, match=r"delivery\.timeout\.ms=100 is less"):
        producer(delivery_timeout_ms=100)
    assert producer(linger_ms=200_000).delivery_timeout_ms == 230_000


def test_bootstrap_servers_are_a_list_or_text_with_commas() -> None:
    assert parse_bootstrap("a:1, b:2,") == (Address("a", 1), Address("b", 2))
    assert parse_bootstrap(["a:1", "[::1]:2", "PLAINTEXT://c:3"]) == (
        Address("a", 1),
        Address("::1", 2),
        Address("c", 3),
    )
    assert str(Address("::1", 2)) == "[::1]:2"


@pytest.mark.parametrize("servers", ["", ",", "host", "host:", ":9092", "host:port", "host:0", "host:70000"])
def test_what_is_not_host_and_port_is_refused(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        parse_bootstrap(servers)


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        ProducerSettings.arguments({"linger.ms": 1})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("isolation_level", "odradek config set --group GROUP share.isolation.level=..."),
        ("auto_offset_reset", "share.auto.offset.reset"),
        ("enable_auto_commit", "share.acknowledgement.mode"),
        ("group_instance_id", "no static members"),
        ("share_aquire_mode", "did you mean 'share_acquire_mode'?"),
    ],
)
def test_a_share_consumer_says_where_a_consumers_settings_have_gone(key: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        ShareConsumerSettings.of(HERE, {"group_id": "g", key: "x"})
    assert words in str(error.value)


def test_a_share_consumer_needs_a_group() -> None:
    with pytest.raises(ConfigError, match=r"needs group\.id"):
        ShareConsumerSettings.of(HERE, {})


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "auto"),
        ({"group_instance_id": "one", "max_poll_interval_ms": 1_000}, "auto"),
        ({"session_timeout_ms": 45_000}, "classic"),
        ({"heartbeat_interval_ms": 3_000}, "classic"),
        ({"partition_assignment_strategy": "range"}, "classic"),
        ({"group_remote_assignor": "uniform"}, "consumer"),
        ({"group_protocol": "auto", "session_timeout_ms": 9_000}, "classic"),
        ({"group_protocol": "classic"}, "classic"),
        ({"group_protocol": "consumer", "group_remote_assignor": "range"}, "consumer"),
    ],
)
def test_a_setting_that_one_protocol_has_chooses_it(given: dict[str, object], protocol: str) -> None:
    assert ConsumerSettings.of(HERE, {"group_id": "g", **given}).group_protocol == protocol


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"group_protocol": "consumer", "session_timeout_ms": 45_000},
            "session.timeout.ms cannot be set with group.protocol=consumer: it is a setting of the group: `odradek config"
            " set --group GROUP consumer.session.timeout.ms=...`",
        ),
        (
            {"group_protocol": "consumer", "heartbeat_interval_ms": 1},
            "heartbeat.interval.ms cannot be set with group.protocol=consumer: it is a setting of the group: `odradek config"
            " set --group GROUP consumer.heartbeat.interval.ms=...`",
        ),
        (
            {"group_protocol": "consumer", "partition_assignment_strategy": "range"},
            "partition.assignment.strategy cannot be set with group.protocol=consumer: the broker assigns: set"
            " group.remote.assignor",
        ),
        (
            {"group_protocol": "classic", "group_remote_assignor": "uniform"},
            "group.remote.assignor cannot be set with group.protocol=classic: set partition.assignment.strategy",
        ),
        (
            {"session_timeout_ms": 9_000, "group_remote_assignor": "uniform"},
            "session.timeout.ms is a setting of group.protocol=classic, group.remote.assignor of group.protocol=consumer:"
            " set one of the two",
        ),
    ],
)
def test_settings_of_the_other_protocol_are_refused(given: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ConsumerSettings.of(HERE, {"group_id": "g", **given})
    assert str(raised.value) == words
