"""Why a group is behind, as a table of cases, and what is drawn of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from odradek.console.model.group_lag import (
    REASONS,
    STUCK_AFTER_MS,
    GroupDetail,
    MemberLag,
    OpenTransactionFact,
    PartitionLag,
    reasons_of,
)
from odradek.console.model.lag_history import LagHistory, LagSample
from odradek.console.model.resets import PartitionReset, ResetPlan, parse_plan_line
from odradek.console.pictures.assignment import COLUMNS, assignment_rows
from odradek.console.pictures.lag_line import HEIGHT, WIDTH, lag_line
from odradek.console.web.catalogue import LANGUAGES, catalogue
from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition

MINUTE = 60_000


def row(number: int, lag: int, member: str = "a", **more: Any) -> PartitionLag:
    facts = {"position": 100, "end": 100 + lag, "stable_end": 100 + lag, "member_id": member, **more}
    return PartitionLag(partition=TopicPartition("t", number), **facts)


def member(name: str, *numbers: int) -> MemberLag:
    return MemberLag(
        name, f"client-{name}", f"host-{name}", tuple(TopicPartition("t", number) for number in numbers)
    )


def group(*rows: PartitionLag, members: tuple[MemberLag, ...] | None = None, **more: Any) -> GroupDetail:
    if members is None:
        names = sorted({each_row.member_id for each_row in rows if each_row.member_id})
        members = tuple(
            member(name, *(own.partition.partition for own in rows if own.member_id == name))
            for name in names
        )
    facts = {"state": "Stable", "type": "consumer", **more}
    return GroupDetail(group_id="g", members=members, partitions=rows, **facts)


HELD = {"position": 100, "stable_end": 100, "transaction": OpenTransactionFact("pay-1", 7, 0)}
MOVING = {"span_ms": MINUTE, "read": 50, "written": 50}
CASES: dict[str, tuple[GroupDetail, list[str]]] = {
    "nothing at all": (group(), ["in_time"]),
    "everything is read": (group(row(0, 0), row(1, 0)), ["in_time"]),
    "no ends are known": (group(row(0, 0, end=-1)), ["unread"]),
    "members that commit nothing": (group(row(0, 5, position=-1)), ["uncommitted"]),
    "one member that commits nothing": (group(row(0, 0), row(1, 5, "b", position=-1)), ["uncommitted"]),
    "no member": (group(row(0, 5, member=""), members=(), state="Empty"), ["no_member"]),
    "no member, and a transaction": (
        group(row(0, 5, member="", **HELD), members=(), state="Empty"),
        ["no_member", "held_back"],
    ),
    "a rebalance": (group(row(0, 5), state="PreparingRebalance"), ["rebalancing"]),
    "a rebalance of the new protocol": (group(row(0, 5), state="Reconciling"), ["rebalancing"]),
    "a transaction": (group(row(0, 5, **HELD), row(1, 0)), ["held_back"]),
    "a transaction that hides only a part": (group(row(0, 5, stable_end=103), row(1, 5)), ["behind"]),
    "a transaction is no stuck member": (
        group(row(0, 5, **HELD, span_ms=MINUTE, written=5), row(1, 0)),
        ["held_back"],
    ),
    "a partition without member": (group(row(0, 5, member=""), row(1, 0)), ["unassigned"]),
    "share groups assign nothing for good": (
        group(row(0, 5, member=""), row(1, 5), type="share"),
        ["behind"],
    ),
    "a partition stands still": (
        group(row(0, 50, span_ms=STUCK_AFTER_MS, written=9), row(1, 5, **MOVING)),
        ["stuck"],
    ),
    "a member that works through its partitions in turn": (
        group(
            row(0, 80, span_ms=MINUTE, read=16),
            *(row(number, 100, span_ms=MINUTE) for number in (1, 2)),
            row(3, 0, "b"),
        ),
        ["busy_member"],
    ),
    "a member that is about to end one of its partitions": (
        group(row(0, 3, span_ms=MINUTE, read=60), row(1, 100, span_ms=MINUTE)),
        ["busy_member"],
    ),
    "a member that keeps up in none, though records arrive": (
        group(row(0, 90, span_ms=MINUTE, read=50, written=60), row(1, 90, span_ms=MINUTE, written=60)),
        ["busy_member"],
    ),
    "a member that is stuck in one partition and keeps up in another": (
        group(row(0, 50, span_ms=MINUTE), row(1, 5, span_ms=MINUTE, read=50, written=50)),
        ["stuck"],
    ),
    "a member that is stuck beside a partition with few records": (
        group(row(0, 50, span_ms=MINUTE), row(1, 0, span_ms=MINUTE, read=1)),
        ["stuck"],
    ),
    "a short pause is none": (group(row(0, 50, span_ms=STUCK_AFTER_MS - 1), row(1, 50)), ["behind"]),
    "a slow member": (
        group(row(0, 50), row(1, 50), row(2, 1, "b"), row(3, 0, "b")),
        ["slow_member"],
    ),
    "two slow members are none": (
        group(row(0, 50), row(1, 50), row(2, 50, "b"), row(3, 50, "b")),
        ["behind"],
    ),
    "the only member is not slow beside itself": (group(row(0, 50), row(1, 50)), ["behind"]),
    "a hot partition": (
        group(row(0, 90, span_ms=MINUTE, read=10, written=90), row(1, 1, "b", **{**MOVING, "written": 5})),
        ["hot_partition"],
    ),
    "one partition": (group(row(0, 90, **MOVING), row(1, 1, "b", **MOVING)), ["one_partition"]),
    "too slow": (
        group(*(row(number, 50, span_ms=MINUTE, read=60, written=600) for number in range(3))),
        ["too_slow"],
    ),
    "catching up": (
        group(*(row(number, 50, span_ms=MINUTE, read=600, written=60) for number in range(3))),
        ["catching_up"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name: str) -> None:
    detail, kinds = CASES[name]
    assert [reason.kind for reason in reasons_of(detail)] == kinds


def test_every_reason_has_a_case_and_words() -> None:
    reasons = {reason.kind: reason for detail, _ in CASES.values() for reason in reasons_of(detail)}
    assert set(reasons) == set(REASONS)
    for language in LANGUAGES:
        for kind, reason in reasons.items():
            for part in ("what", "next"):
                assert "{" not in catalogue(language).text(f"why.{kind}.{part}", **reason.values)


def test_reasons_say_whose_it_is() -> None:
    [held] = reasons_of(CASES["a transaction"][0])
    assert held.values == {"partitions": "t-0", "lag": 5, "transaction": "pay-1"}
    [slow] = reasons_of(CASES["a slow member"][0])
    assert (slow.values["client"], slow.values["host"], slow.values["lag"]) == ("client-a", "host-a", 100)
    nameless = group(replace(row(0, 5, **HELD), transaction=OpenTransactionFact("", 7, 0)))
    assert reasons_of(nameless)[0].values["transaction"] == "producer 7"


def test_a_history_is_bounded_in_samples_and_groups() -> None:
    history = LagHistory(samples_max=3, groups_max=2)
    for moment in range(5):
        history.note("a", moment, moment * 10)
    assert history.of("a") == [LagSample(2, 20), LagSample(3, 30), LagSample(4, 40)]
    history.note("a", 9, -1)
    assert len(history.of("a")) == 3
    history.note("b", 0, 0)
    history.note("c", 0, 0)
    assert history.of("a") == []


def test_a_line_fills_its_picture() -> None:
    line = lag_line([LagSample(0, 0), LagSample(500, 20), LagSample(1_000, 10)])
    assert line is not None
    assert line.points == f"0.0,{HEIGHT} {WIDTH / 2},0.0 {WIDTH},{HEIGHT / 2}"
    assert (line.lag_max, line.span_ms) == (20, 1_000)
    assert lag_line([LagSample(0, 5)]) is None
    assert lag_line([LagSample(0, 0), LagSample(1, 0)]) is not None


def test_partitions_are_drawn_by_member_with_those_of_none_first() -> None:
    rows = [row(number, 10) for number in range(COLUMNS + 1)]
    detail = group(*rows, row(99, 1_000, member=""), row(100, 0, "b"))
    drawn = assignment_rows(detail)
    assert [(drawn_row.member_id, len(drawn_row.cells)) for drawn_row in drawn] == [
        ("", 1),
        ("a", COLUMNS + 1),
        ("b", 1),
    ]
    assert (drawn[1].cells[-1].x, drawn[1].cells[-1].y > 0) == (0, True)
    assert [cells.cells[0].level for cells in drawn] == [3, 2, 0]


def test_a_reset_counts_what_is_read_again_and_what_is_left_out() -> None:
    tp = TopicPartition("t", 0)
    facts = {"partition": tp, "begin": 10, "end": 100}
    back = PartitionReset(before=50, after=20, **facts)
    assert (back.read_again, back.skipped) == (30, 0)
    forth = PartitionReset(before=5, after=60, **facts)
    assert (forth.read_again, forth.skipped) == (0, 50)
    fresh = PartitionReset(before=None, after=10, **facts)
    assert (fresh.read_again, fresh.skipped) == (0, 0)
    plan = ResetPlan(rows=(back,))
    assert {place: offset.offset for place, offset in parse_plan_line(plan.text).items()} == {tp: 20}


@pytest.mark.parametrize("text", ["t:0", "t:x:1", "t:0:-1", "t:0:1:2", "t:0:1 u:none"])
def test_a_plan_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="make the preview again"):
        parse_plan_line(text)
