from __future__ import annotations

import dataclasses
import os

import pytest

from odradek.config.broker import BROKER_PATHS, BrokerConfig, value_of
from odradek.config.listening.listeners import Listener
from odradek.config.loading import load_broker_config, reconfigured, without_effect
from odradek.config.server import ServerConfig, StorageConfig
from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError

KRAFT_EXAMPLE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
}
"""The settings that Kafka's own example of a server.properties sets."""


def load(**values: str) -> BrokerConfig:
    config, _ = load_broker_config({key.replace("_", "."): text for key, text in values.items()})
    return config


def refusal(values: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(values)
    return str(caught.value)


def test_with_no_setting_at_all_it_is_a_broker_on_loopback() -> None:
    config, warnings = load_broker_config({})
    assert warnings == []
    assert config.server.node_id == 1
    assert config.network.listeners == (
        Listener(name="PLAINTEXT", host="127.0.0.1", port=9092, protocol="PLAINTEXT"),
    )
    assert config.network.advertised_listeners == ()
    assert config.storage.log_dirs[0].endswith("/odradek")


def test_loading_nothing_gives_what_the_constructor_gives() -> None:
    config, _ = load_broker_config({})
    plain = BrokerConfig()
    for key in BROKER_PATHS:
        if key != "listener.security.protocol.map":
            assert value_of(config, key) == value_of(plain, key), key


def test_kafkas_own_example_works_and_names_what_has_no_effect() -> None:
    config, warnings = load_broker_config(KRAFT_EXAMPLE)
    assert [str(listener) for listener in config.network.listeners] == ["PLAINTEXT://:9092"]
    assert [str(listener) for listener in config.network.advertised_listeners] == [
        "PLAINTEXT://localhost:9092"
    ]
    assert config.storage.log_dirs == ("/tmp/kraft-combined-logs",)
    assert warnings == [
        "setting process.roles has no effect: brokers are not coordinated by a KRaft quorum",
        "setting controller.quorum.bootstrap.servers has no effect: brokers are not coordinated by a "
        "KRaft quorum",
        "setting num.network.threads has no effect: it tunes what only Kafka's Java broker has",
        "listener CONTROLLER is not opened: there is no KRaft controller",
    ]


@pytest.mark.parametrize(
    ("key", "warning"),
    [
        ("zookeeper.sync.time.ms", "zookeeper.sync.time.ms has no effect: Kafka itself dropped it"),
        ("create.topic.policy.class.name", "is not supported yet"),
        ("ssl.keystore.location", "has no effect: no listener has TLS"),
        ("host.name", "Kafka itself dropped it; use listeners"),
        ("log.preallocate", "setting log.preallocate is not supported yet and has no effect"),
        ("listener.name.internal.ssl.keystore.location", "no listener is named INTERNAL"),
        ("confluent.license", "belongs to Confluent Platform and has no effect"),
        ("retention.ms", "retention.ms is a topic setting and has no effect here; use log.retention.ms"),
        ("remote.storage.enable", "is a topic setting and has no effect here; set it on a topic"),
        ("log.retenton.ms", "unknown setting log.retenton.ms has no effect; did you mean log.retention.ms?"),
        ("colour", "unknown setting colour has no effect"),
    ],
)
def test_what_has_no_effect_is_never_passed_over_in_silence(key: str, warning: str) -> None:
    _, warnings = load_broker_config({key: "anything"})
    assert len(warnings) == 1
    assert warning in warnings[0]


def test_all_mistakes_are_reported_at_once() -> None:
    message = refusal({"num.partitions": "0", "listeners": "nonsense", "log.retention.ms": "week"})
    assert "num.partitions='0' is not allowed: expected a whole number of 32 bits, 1 or more" in message
    assert "listeners='nonsense' is not allowed: expected NAME://HOST:PORT" in message
    assert "log.retention.ms='week' is not allowed" in message


def test_the_older_name_of_the_node_id_counts_unless_it_is_minus_one() -> None:
    assert load(broker_id="7").server.node_id == 7
    assert load(broker_id="-1", node_id="4").server.node_id == 4
    assert load(broker_id="-1").server.node_id == 1
    assert "broker.id=3 is not allowed: node.id=4 says otherwise" in refusal(
        {"broker.id": "3", "node.id": "4"}
    )


def test_log_dirs_win_over_log_dir_and_are_absolute() -> None:
    assert load(log_dir="/one").storage.log_dirs == ("/one",)
    assert load(log_dir="/one", log_dirs="/two, three").storage.log_dirs == ("/two", os.path.abspath("three"))
    assert load(log_dirs="~/data").storage.log_dirs == (os.path.expanduser("~/data"),)
    assert "each named once" in refusal({"log.dirs": "/one,/two/../one"})


def test_limits_for_certain_addresses_are_read() -> None:
    config = load(max_connections_per_ip_overrides="10.0.0.1:5, [::1]:6,host:7")
    assert config.network.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 6, "host": 7}
    assert "expected ADDRESS:COUNT" in refusal({"max.connections.per.ip.overrides": "10.0.0.1"})


def test_a_listener_whose_security_is_missing_is_refused_rather_than_opened_without() -> None:
    assert "needs a certificate" in refusal({"listeners": "SSL://:9093"})
    assert "GSSAPI, which sasl.enabled.mechanisms is when it is not set" in refusal(
        {"listeners": "OUTSIDE://:9093", "listener.security.protocol.map": "OUTSIDE:SASL_PLAINTEXT"}
    )


def test_a_listener_for_a_controller_is_left_out_whatever_its_security() -> None:
    given = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    for more in ({}, {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"}):
        config, _ = load_broker_config({**given, **more})
        assert [listener.name for listener in config.network.listeners] == ["PLAINTEXT"]


@pytest.mark.check(47)
def test_a_password_does_not_show_when_a_configuration_is_printed() -> None:
    config, warnings = load_broker_config({"ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(config) + str(warnings)


def test_a_running_broker_takes_only_what_may_change() -> None:
    config = load(log_retention_hours="1", node_id="5")
    changed = reconfigured(config, {"log.retention.ms": "9", "message.max.bytes": "3"})
    assert (changed.log.retention_ms, changed.log.max_message_bytes) == (9, 3)
    assert changed.server.node_id == 5
    with pytest.raises(ConfigError, match=r"node\.id cannot change while the broker runs"):
        reconfigured(config, {"node.id": "6"})
    with pytest.raises(ConfigError, match=r"log\.retention\.ms='soon' is not allowed"):
        reconfigured(config, {"log.retention.ms": "soon"})


def test_a_running_broker_goes_on_as_it_started_where_it_cannot_change() -> None:
    config = load()
    changed = reconfigured(
        config, {"num.io.threads": "3", "num.network.threads": "5"}, {"listeners": "PLAINTEXT://:1"}
    )
    assert (changed.server.num_io_threads, changed.network.listeners) == (
        config.server.num_io_threads,
        config.network.listeners,
    )
    assert changed.dynamic == {"listeners": "PLAINTEXT://:1"}
    for key in ("num.io.threads", "listeners", "num.network.threads", "colour"):
        assert without_effect(key) is not None
    assert without_effect("log.cleaner.backoff.ms") is None
    with pytest.raises(ConfigError, match="listeners can change on one broker only"):
        reconfigured(config, {"listeners": "PLAINTEXT://:1"})
    with pytest.raises(ConfigError, match=r"num\.io\.threads='x' is not allowed"):
        reconfigured(config, {"num.io.threads": "x"})


def test_a_running_broker_keeps_what_it_does_not_know() -> None:
    config = reconfigured(load(), {"colour": "red"}, {"shape": "round"})
    assert (config.dynamic_defaults, config.dynamic) == ({"colour": "red"}, {"shape": "round"})


def test_what_a_running_broker_took_can_be_taken_back() -> None:
    config = load(log_retention_hours="1")
    changed = reconfigured(reconfigured(config, {"log.retention.ms": "9"}), {"log.segment.bytes": "2000000"})
    assert changed.log.retention_ms == 3_600_000
    assert changed.dynamic_defaults == {"log.segment.bytes": "2000000"}
    assert reconfigured(changed, {}) == config


def test_a_change_leaves_alone_what_the_constructor_was_given() -> None:
    config = BrokerConfig(
        server=ServerConfig(node_id=9),
        storage=StorageConfig(log_dirs=("/data",)),
        log=LogConfig(segment_bytes=77),
    )
    changed = reconfigured(config, {"log.retention.ms": "9"})
    assert (changed.server.node_id, changed.storage.log_dirs) == (9, ("/data",))
    assert (changed.log.segment_bytes, changed.log.retention_ms) == (77, 9)


def test_a_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerConfig().server.node_id = 2  # type: ignore[misc]


def test_brokers_have_a_listener_of_their_own_if_it_is_among_the_listeners() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,INSIDE://:9093",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT",
    }
    assert load_broker_config(settings)[0].network.inter_broker_listener_name is None
    config, _ = load_broker_config({**settings, "inter.broker.listener.name": "inside"})
    assert config.network.inter_broker_listener_name == "INSIDE"
    with pytest.raises(ConfigError, match=r"no listener has this name \(PLAINTEXT, INSIDE\)"):
        load_broker_config({**settings, "inter.broker.listener.name": "OTHER"})


def test_the_control_plane_has_a_listener_of_its_own() -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,INSIDE://:9093,CONTROL://:9094",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,CONTROL:PLAINTEXT",
    }
    key = "control.plane.listener.name"
    assert load_broker_config(settings)[0].network.control_plane_listener_name is None
    config, warnings = load_broker_config({**settings, key: "control"})
    assert config.network.control_plane_listener_name == "CONTROL"
    assert not [warning for warning in warnings if key in warning]
    with pytest.raises(ConfigError, match=rf"{key}=OTHER .* no listener has this name"):
        load_broker_config({**settings, key: "OTHER"})
    with pytest.raises(ConfigError, match=rf"{key}=INSIDE .* other brokers use this listener"):
        load_broker_config({**settings, key: "INSIDE", "inter.broker.listener.name": "INSIDE"})
    with pytest.raises(ConfigError, match=rf"{key}=PLAINTEXT .* other brokers use this listener"):
        load_broker_config({**settings, key: "PLAINTEXT"})
    with pytest.raises(ConfigError, match=rf"{key}=PLAINTEXT .* other brokers use this listener"):
        load_broker_config({**settings, key: "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"})
    with pytest.raises(ConfigError, match="other brokers use this listener"):
        load_broker_config({key: "PLAINTEXT"})
