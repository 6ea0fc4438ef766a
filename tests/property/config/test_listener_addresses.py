"""What `--listen` and `--brokers N` do to listeners: names, and with them protocols, stay; ports follow one another."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.listening.listener_addresses import (
    at_address,
    first_address,
    for_brokers,
    with_first_address,
)
from odradek.config.listening.listeners import parse_listeners, parse_protocol_map
from odradek.model.errors import ConfigError

MAP = "CLIENTS:SASL_SSL,BROKERS:SSL,CONTROL:SASL_PLAINTEXT"
PROTOCOLS = parse_protocol_map("", MAP.split(","))


def listeners_of(text: str) -> dict[str, tuple[str, str, int]]:
    listeners = parse_listeners("listeners", text.split(","), PROTOCOLS)
    return {listener.name: (listener.protocol, listener.host, listener.port) for listener in listeners}


@given(
    ports=st.lists(
        st.one_of(st.just(0), st.integers(1, 60_000)),
        min_size=1,
        max_size=3,
        unique_by=lambda port: port or object(),
    ),
    count=st.integers(1, 5),
)
def test_brokers_keep_every_listener_and_never_share_a_port(ports: list[int], count: int) -> None:
    names = ("CLIENTS", "BROKERS", "CONTROL")[: len(ports)]
    text = ",".join(f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True))
    values = {"listeners": text, "listener.security.protocol.map": MAP}
    fixed = sorted(filter(None, ports))
    if any(after - before < count for before, after in itertools.pairwise(fixed)):
        with pytest.raises(ConfigError, match="want one port"):
            for_brokers(values, count)
        return
    own = for_brokers(values, count)
    taken = []
    for number, settings in enumerate(own):
        for name, port in zip(names, ports, strict=True):
            protocol, host, moved = listeners_of(settings["listeners"])[name]
            assert (protocol, host) == (PROTOCOLS[name], "127.0.0.1")
            assert moved == (port + number if port else 0)
            taken += [moved] if moved else []
    assert len(set(taken)) == len(taken)


def test_what_is_advertised_moves_along() -> None:
    values = {"listeners": "SASL_SSL://:9092", "advertised.listeners": "SASL_SSL://broker.example:19092"}
    assert [settings["advertised.listeners"] for settings in for_brokers(values, 2)] == [
        "SASL_SSL://broker.example:19092",
        "SASL_SSL://broker.example:19093",
    ]


def test_a_listener_of_a_kraft_controller_stays_as_it_is() -> None:
    values = {"listeners": "SASL_SSL://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    assert at_address(values, "127.0.0.1:1") == "SASL_SSL://127.0.0.1:1,CONTROLLER://:9093"
    assert [settings["listeners"] for settings in for_brokers(values, 2)] == [
        "SASL_SSL://:9092,CONTROLLER://:9093",
        "SASL_SSL://:9093,CONTROLLER://:9093",
    ]


def test_one_address_does_not_do_for_two_listeners() -> None:
    values = {"listeners": "CLIENTS://:1,BROKERS://:2", "listener.security.protocol.map": MAP}
    with pytest.raises(ConfigError, match="there are 2 listeners"):
        at_address(values, "127.0.0.1:9092")


def test_an_address_comes_back_to_the_first_listener() -> None:
    values = {"listeners": "CLIENTS://:0,BROKERS://:0", "listener.security.protocol.map": MAP}
    assert first_address(values) == ":0"
    assert with_first_address(values, "127.0.0.1:7") == "CLIENTS://127.0.0.1:7,BROKERS://:0"


def test_without_listeners_it_is_the_one_in_the_name_plaintext_whatever_that_stands_for() -> None:
    assert at_address({}, "[::1]:9") == "PLAINTEXT://[::1]:9"
    mapped = {"listener.security.protocol.map": "PLAINTEXT:SASL_SSL"}
    assert at_address(mapped, "127.0.0.1:9") == "PLAINTEXT://127.0.0.1:9"
