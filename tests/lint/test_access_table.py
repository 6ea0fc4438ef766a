"""The rule about the table of access rules finds what it is for."""

from __future__ import annotations

from tests.lint.access_table import findings

from odradek.protocol import APIS, api_by_name
from odradek.protocol.access import ACCESS


def test_every_api_says_who_may_ask_for_what() -> None:
    assert list(findings()) == []


def test_an_api_without_rows_is_reported() -> None:
    less = {name: rules for name, rules in ACCESS.items() if name != "Produce"}
    assert list(findings(access=less)) == ["Produce: no rows in protocol/access.py: who may ask for it?"]


def test_rows_without_an_api_are_reported() -> None:
    more = {**ACCESS, "Conquer": ()}
    assert list(findings(access=more)) == ["Conquer: rows of access without an API"]


def test_a_field_that_is_not_there_and_operations_that_are_not_asked_for_are_reported() -> None:
    changed = {**ACCESS, "Heartbeat": (ACCESS["EndTxn"][0]._replace(field="transactions[].id"),)}
    api = api_by_name("Heartbeat")
    reported = list(findings({api.key: api}, {"Heartbeat": changed["Heartbeat"]}))
    assert len(reported) == 2
    assert "no field transactions[].id" in reported[0]
    assert "WRITE TRANSACTIONAL_ID" in reported[1]
    assert APIS[api.key] is api
