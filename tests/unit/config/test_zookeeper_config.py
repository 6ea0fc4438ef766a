from __future__ import annotations

import pytest

from odradek.config.loading import load_broker_config
from odradek.config.zookeeper import parse_connect
from odradek.model.errors import ConfigError

ZOOKEEPER_EXAMPLE = {
    "broker.id": "0",
    "num.network.threads": "3",
    "log.dirs": "/tmp/kafka-logs",
    "zookeeper.connect": "localhost:2181",
    "zookeeper.connection.timeout.ms": "18000",
    "group.initial.rebalance.delay.ms": "0",
}
"""What Kafka's example of a server.properties for ZooKeeper sets."""


def refusal(**values: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_broker_config({key.replace("__", "."): text for key, text in values.items()})
    return str(caught.value)


def test_kafkas_example_for_zookeeper_needs_no_warning_about_it() -> None:
    config, warnings = load_broker_config(ZOOKEEPER_EXAMPLE)
    assert config.zookeeper.connect == "localhost:2181"
    assert config.zookeeper.connection_timeout_ms == 18_000
    assert not [warning for warning in warnings if "zookeeper" in warning]


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("zoo", (("zoo", 2181),), ""),
        ("a:1, b:2/odradek/eu", (("a", 1), ("b", 2)), "/odradek/eu"),
        ("[::1]:2182/x", (("::1", 2182),), "/x"),
        ("a:1/", (("a", 1),), ""),
    ],
)
def test_servers_and_path_are_read_as_kafka_reads_them(
    text: str, servers: tuple[tuple[str, int], ...], chroot: str
) -> None:
    connect = parse_connect(text)
    assert (connect.servers, connect.chroot) == (servers, chroot)


@pytest.mark.parametrize(
    "text", ["", ",", "a:0", "a:65536", "a:b", "a:1//x", "a:1/x/../y", "a b:1", "a:1,/x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    assert "zookeeper.connect=" in refusal(zookeeper__connect=text)


def test_an_access_list_needs_someone_to_let_in() -> None:
    assert "does not know whom to let in" in refusal(zookeeper__set__acl="true")
    config, _ = load_broker_config(
        {
            "zookeeper.set.acl": "true",
            "odradek.zookeeper.username": "broker",
            "odradek.zookeeper.password": "secret",
        }
    )
    assert config.zookeeper.set_acl
    assert "secret" not in str(config.originals.keys())


def test_a_user_without_a_password_is_refused() -> None:
    assert "only allowed together" in refusal(odradek__zookeeper__username="broker")


def test_javas_own_stores_are_refused_with_a_way_out() -> None:
    assert "openssl pkcs12" in refusal(zookeeper__ssl__keystore__location="/etc/kafka/keys.JKS")
    assert "expected one of PEM" in refusal(zookeeper__ssl__truststore__type="JKS")


def test_a_socket_without_tls_contradicts_tls() -> None:
    java = "org.apache.zookeeper.ClientCnxnSocket"
    tls = {"zookeeper.ssl.client.enable": "true"}
    assert load_broker_config({**tls, "zookeeper.clientCnxnSocket": f"{java}Netty"})[1] == []
    with pytest.raises(ConfigError, match="has no TLS"):
        load_broker_config({**tls, "zookeeper.clientCnxnSocket": f"{java}NIO"})


def test_the_directory_of_a_shared_registry_is_absolute() -> None:
    config, _ = load_broker_config({"odradek.registry.dir": "/data/../first"})
    assert config.cluster.registry_dir == "/first"
    assert load_broker_config({})[0].cluster.registry_dir is None
