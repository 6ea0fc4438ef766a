"""Text that Python reads as a number and Java does not is refused wherever a person writes one.

The tests of options, of settings and of Spark's options go through their tables. Here are the readers that have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
from tests.unit.hostile_numbers import NO_REAL, NO_WHOLE

from odradek.cli.group.offset_resets import parse_plan, parse_scopes
from odradek.cli.moments import duration_ms, parse_start, parse_timestamp
from odradek.cli.quota import _number as quota
from odradek.cli.sandbox.shell import _number as sandbox_count
from odradek.cli.sandbox.shell import _seconds as sandbox_seconds
from odradek.cli.sql.sql import _door_port
from odradek.cli.table import _address
from odradek.client.settings.address import parse_bootstrap
from odradek.config.listening.listeners import parse_host_port
from odradek.config.loading import load_broker_config
from odradek.config.zookeeper import parse_connect
from odradek.dead_letters.dialects import decimal_number as header_number
from odradek.dead_letters.selection import parse_place
from odradek.model.durations import iso_duration_ms
from odradek.model.errors import OdradekError
from odradek.model.java_numbers import decimal_number, finite_number, is_digits, trimmed, whole_number
from odradek.retry.clients import _milliseconds
from odradek.retry.policy import delay_ms
from odradek.security.audit import parse_rules
from odradek.security.sasl.credentials import first_users
from odradek.streams.plan.windows import milliseconds
from odradek.views.http.answers import limit_of, time_of
from odradek.views.key_formats import key_format
from odradek.views.windows import windowed

Reader = Callable[[str], Any]


def _or_refused(reader: Reader) -> Reader:
    """A reader that answers None where others raise."""

    def read(text: str) -> Any:
        value = reader(text)
        if value is None:
            raise OdradekError("None")
        return value

    return read


def _connections_of_an_address(text: str) -> Any:
    return load_broker_config({"max.connections.per.ip.overrides": f"10.0.0.1:{text}"})[0]


def _header(text: str) -> int | None:
    return header_number(text.encode())


WHOLE: dict[str, Reader] = {
    "a duration of ISO 8601": _or_refused(lambda text: iso_duration_ms(f"PT{text}H")),
    "a duration of the command line": lambda text: duration_ms(f"{text}s"),
    "a place to start": lambda text: parse_start(text, now_ms=0),
    "a timestamp": lambda text: parse_timestamp(text, now_ms=0),
    "an offset of a plan": lambda text: parse_plan(f't,0,"{text}"'),
    "a partition of a plan": lambda text: parse_plan(f't,"{text}",0'),
    "an offset of a plan in JSON": lambda text: parse_plan(
        f'[{{"topic": "t", "partition": "0", "offset": "{text}"}}]'
    ),
    "a partition of a scope": lambda text: parse_scopes([f"t:{text}"]),
    "a count of the sandbox": lambda text: sandbox_count([text]),
    "a door of SQL": _or_refused(lambda text: _door_port("--jdbc", text, None)),
    "an address of a view": lambda text: _address(f"h:{text}"),
    "a port of bootstrap.servers": lambda text: parse_bootstrap(f"h:{text}"),
    "a port of a listener": lambda text: parse_host_port(f"h:{text}"),
    "a port of ZooKeeper": lambda text: parse_connect(f"h:{text}"),
    "connections of an address": _connections_of_an_address,
    "a header of a dead letter": _or_refused(_header),
    "a partition of dead letters": lambda text: parse_place(f"t:{text}"),
    "an offset of dead letters": lambda text: parse_place(f"t:0:{text}"),
    "a time of retries": lambda text: _milliseconds("k", text),
    "a delay of retries": lambda text: delay_ms(f"{text}s"),
    "iterations of a user": lambda text: first_users(
        f"SCRAM-SHA-256=[name=a,password=b,iterations={text}]", lambda count: bytes(count)
    ),
    "a limit of a view": lambda text: limit_of(text, 1, 10_000),
    "a time of a view": lambda text: time_of(text, "time"),
    "a whole key": lambda text: key_format("long").parse(text),
    "the size of a window": lambda text: windowed(key_format("long"), f"{text} minutes"),
    "the length of a window": lambda text: milliseconds(f"{text} minutes", "size"),
}
REAL: dict[str, Reader] = {
    "a decimal": decimal_number,
    "a finite number": finite_number,
    "a quota": lambda text: quota("producer_byte_rate", text),
    "seconds of the sandbox": lambda text: sandbox_seconds([text]),
}
_FITTING = {"a quota": "2048", "iterations of a user": "4096"}
_LISTS = ("a partition of a scope", "a port of ZooKeeper")
"""1,000 is two numbers here."""


@pytest.mark.parametrize("reader", WHOLE)
def test_whole_numbers_are_digits(reader: str) -> None:
    WHOLE[reader](_FITTING.get(reader, "12"))
    for text in NO_WHOLE:
        if not (reader in _LISTS and "," in text):
            _refuses(WHOLE[reader], text)


@pytest.mark.parametrize("reader", REAL)
def test_real_numbers_are_digits_with_a_point(reader: str) -> None:
    REAL[reader](_FITTING.get(reader, "2.5"))
    for text in NO_REAL:
        if reader == "a decimal" and text in ("1e999", "9" * 5_000):
            continue  # a decimal has room for these
        _refuses(REAL[reader], text)


def _refuses(reader: Reader, text: str) -> None:
    with (
        click.Context(click.Command("command")),
        pytest.raises((OdradekError, ValueError, click.UsageError)) as refused,
    ):
        reader(text)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


def test_a_share_of_the_audit_is_finite() -> None:
    assert parse_rules("keep sample=0.5")[0].share == 0.5
    for text in NO_REAL:
        if text.split() == [text]:
            _refuses(parse_rules, f"keep sample={text}")


def test_digits() -> None:
    wrong = ("", "-1", "+1", "\u00b2", "\u0661", "1 ", "1_0", "1" * 19)
    assert not any(map(is_digits, wrong))
    assert all(map(is_digits, ("0", "12", "1" * 18)))
    assert is_digits("1" * 19, at_most=19)


def test_what_java_trims_and_reads() -> None:
    assert trimmed("\x00\t 5 \r\n\x1f") == "5"
    assert trimmed("\u00a05\u2003") == "\u00a05\u2003"
    assert whole_number("+5") == whole_number("05") == 5
    for text in NO_WHOLE:
        _refuses(whole_number, text)
