"""Which audit events are kept, and what they say."""

from __future__ import annotations

import json

import pytest

from odradek.model.errors import ConfigError
from odradek.security.audit import (
    DETAIL_BYTES_MAX,
    EVENT_BYTES_MAX,
    NAME_BYTES_MAX,
    AuditEvent,
    AuditRules,
    clipped,
    parse_rules,
)


def event(kind: str = "change", **values: object) -> AuditEvent:
    known = {"outcome": "done", "principal": "User:alice", "api": "Produce", "resources": ("TOPIC:orders-1",)}
    return AuditEvent(time_ms=1, broker=1, kind=kind, **{**known, **values})  # type: ignore[arg-type]


def kept(text: str, audited: AuditEvent, *, sample: float = 1.0, draw: float = 0.5) -> bool:
    return AuditRules(text, sample=sample).keeps(audited, lambda: draw)


@pytest.mark.parametrize(
    ("kind", "is_kept"), [("change", True), ("login", True), ("refusal", True), ("access", False)]
)
def test_without_rules_all_but_data_access_is_kept(kind: str, is_kept: bool) -> None:
    assert kept("", event(kind)) is is_kept


def test_refusals_are_sampled_and_changes_are_not() -> None:
    assert kept("", event("refusal"), sample=0.6)
    assert not kept("", event("refusal"), sample=0.4)
    assert kept("", event("change"), sample=0.0)


@pytest.mark.parametrize(
    ("rules", "is_kept"),
    [
        ("keep api=Produce", True),
        ("keep api=Fetch", False),
        ("keep api=Produce resource=TOPIC:orders*", True),
        ("keep api=Produce resource=TOPIC:payments*", False),
        ("drop principal=User:alice; keep api=*", False),
        ("keep api=*; drop principal=User:alice", True),
        ("keep sample=0.6", True),
        ("keep sample=0.4", False),
    ],
)
def test_the_first_rule_that_fits_decides(rules: str, is_kept: bool) -> None:
    assert kept(rules, event("access")) is is_kept


def test_only_apis_that_a_rule_may_keep_are_watched() -> None:
    rules = AuditRules("keep api=Prod*; keep kind=refusal; drop api=Fetch")
    assert (rules.watches("Produce"), rules.watches("Fetch")) == (True, False)


@pytest.mark.parametrize(
    "text", ["hold api=x", "keep api", "keep colour=red", "keep sample=2", "drop sample=0.5"]
)
def test_a_rule_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"odradek\.audit\.rules"):
        parse_rules(text)


def test_an_event_is_one_line_without_what_is_not_known() -> None:
    line = event(detail="a\nb").line()
    assert b"\n" not in line
    assert json.loads(line) == {
        "time_ms": 1,
        "broker": 1,
        "kind": "change",
        "outcome": "done",
        "principal": "User:alice",
        "api": "Produce",
        "resources": ["TOPIC:orders-1"],
        "detail": "a\nb",
    }


@pytest.mark.parametrize("letter", ["a", "\x01", "\U0001f600"])
def test_whatever_a_client_chooses_an_event_has_a_largest_size_and_says_what_was_cut(letter: str) -> None:
    long = letter * 32_000
    names = dict.fromkeys(("principal", "client", "host", "listener"), long)
    short = event(detail=long, resources=(long,) * 1000, errors=("X" * 45,) * 1000, **names).clipped()
    assert len(short.line()) <= EVENT_BYTES_MAX
    assert json.loads(short.line())["cut"] is True
    assert short.client.endswith("...")
    assert letter in short.client


def test_an_event_that_is_short_enough_is_kept_as_it_is() -> None:
    longest = "TOPIC:" + "t" * 249
    short = event(resources=(longest,) * 20, detail="d" * DETAIL_BYTES_MAX)
    assert short.clipped() is short


def test_a_text_is_cut_where_its_json_is_too_long_and_not_within_a_letter() -> None:
    assert clipped("a" * NAME_BYTES_MAX) == "a" * NAME_BYTES_MAX
    assert clipped("a" * (NAME_BYTES_MAX + 1)) == "a" * (NAME_BYTES_MAX - 3) + "..."
    assert clipped("\u00e9" * 100, 32) == "\u00e9" * 4 + "..."
