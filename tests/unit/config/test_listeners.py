from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.listening.listeners import (
    Listener,
    check_advertised,
    format_address,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
)
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError

PROTOCOLS = parse_protocol_map("map", ["INTERNAL:PLAINTEXT", "outside:ssl"])


def parse(*items: str) -> tuple[Listener, ...]:
    return parse_listeners("listeners", items, PROTOCOLS)


def test_a_listener_has_a_name_a_host_a_port_and_a_protocol() -> None:
    assert parse("internal://db.example:19092", "OUTSIDE://[::1]:0", "PLAINTEXT://:9092") == (
        Listener(name="INTERNAL", host="db.example", port=19092, protocol="PLAINTEXT"),
        Listener(name="OUTSIDE", host="::1", port=0, protocol="SSL"),
        Listener(name="PLAINTEXT", host="", port=9092, protocol="PLAINTEXT"),
    )


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["localhost:9092"], "expected NAME://HOST:PORT"),
        (["PLAINTEXT://localhost"], "expected NAME://HOST:PORT"),
        (["PLAINTEXT://localhost:65536"], "a port from 0 to 65535"),
        (["PLAINTEXT://::1:9092"], "expected NAME://HOST:PORT"),
        (["PLAINTEXT://localhost:9092/"], "expected NAME://HOST:PORT"),
        (["EXTERNAL://:9092"], "listener.security.protocol.map gives no protocol for EXTERNAL"),
        (["PLAINTEXT://:1", "PLAINTEXT://:2"], "the name PLAINTEXT is used twice"),
        (["PLAINTEXT://:1", "SSL://:1"], "already uses port 1"),
    ],
)
def test_a_listener_that_cannot_be_is_refused(items: list[str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*items)
    assert words in str(caught.value)


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port_and_any_may_share_port_zero() -> None:
    assert len(parse("PLAINTEXT://127.0.0.1:9092", "INTERNAL://[::1]:9092")) == 2
    assert len(parse("PLAINTEXT://:0", "INTERNAL://:0")) == 2


@pytest.mark.parametrize("text", ["INTERNAL", ":SSL", "INTERNAL:TLS", ""])
def test_a_protocol_map_names_known_protocols(text: str) -> None:
    with pytest.raises(ConfigError, match="expected NAME:PROTOCOL"):
        parse_protocol_map("listener.security.protocol.map", [text])


@pytest.mark.parametrize(
    ("advertised", "words"),
    [
        ("PLAINTEXT://0.0.0.0:9092", "every interface"),
        ("PLAINTEXT://:9092", "every interface"),
        ("PLAINTEXT://[::]:9092", "every interface"),
        ("PLAINTEXT://host:0", "port 0"),
        ("SSL://host:9093", "no listener is named SSL"),
    ],
)
def test_what_no_client_can_connect_to_is_not_advertised(advertised: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_advertised("advertised.listeners", parse(advertised), parse("PLAINTEXT://:9092"))
    assert words in str(caught.value)


@given(st.from_regex(r"[a-z][a-z0-9.-]{0,20}|\[?[0-9a-f:]{2,20}\]?", fullmatch=True), st.integers(0, 65535))
def test_an_address_survives_being_written_and_read(host: str, port: int) -> None:
    bare = host.strip("[]")
    if bare:
        assert parse_host_port(format_address(bare, port)) == (bare, port)


@given(st.text())
def test_no_text_does_more_than_raise_a_config_error(text: str) -> None:
    for parse_one in (parse_host_port, parse):
        try:
            parse_one(text)
        except ConfigError as error:
            message = str(error)
        else:
            continue
        assert message


@pytest.mark.parametrize(
    ("advertised", "words"),
    [
        ("", "advertises no name"),
        ("SASL_PLAINTEXT://10.0.0.7:9093", "advertises 10.0.0.7"),
        ("SASL_PLAINTEXT://[::1]:9093", "advertises ::1"),
        ("SASL_PLAINTEXT://broker.example:9093", ""),
    ],
)
def test_a_listener_with_kerberos_that_advertises_no_host_name_is_warned_of(
    advertised: str, words: str
) -> None:
    values = {
        "listeners": "SASL_PLAINTEXT://0.0.0.0:9093",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": 'x.Krb5LoginModule required keyTab="k" principal="kafka/broker.example@EXAMPLE";',
    }
    if advertised:
        values["advertised.listeners"] = advertised
    _, warnings = load_broker_config(values)
    assert [words in warning for warning in warnings] == [True] * bool(words)
