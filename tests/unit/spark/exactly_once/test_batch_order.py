"""Whether a batch is to be written, by the last decision of its sink."""

from __future__ import annotations

import pytest

from odradek.model.errors import ConfigError
from odradek.spark.exactly_once.decision import Decision
from odradek.spark.exactly_once.task import BatchName, is_written


def decided(query: str, batch: int, *, is_keyed: bool = False) -> Decision:
    return Decision(
        sink_id="s", query=query, batch=batch, side=0, driver=(1, 1), participants=(), is_keyed=is_keyed
    )


def batch(query: str, number: int) -> BatchName:
    return BatchName(query=query, batch=number)


def keyed(key: str) -> BatchName:
    return BatchName(query=key, batch=0, is_keyed=True)


@pytest.mark.parametrize("taking_over", [False, True])
@pytest.mark.parametrize(
    ("name", "last", "expected"),
    [
        (batch("q", 0), None, False),
        (batch("q", 5), decided("q", 4), False),
        (batch("q", 4), decided("q", 4), True),
        (batch("q", 3), decided("q", 4), True),  # a checkpoint from a backup
        (keyed("k"), None, False),
        (keyed("k"), decided("k", 0, is_keyed=True), True),
        (keyed("l"), decided("k", 0, is_keyed=True), False),
    ],
)
def test_a_batch_is_written_unless_the_decision_has_it(
    name: BatchName, last: Decision | None, expected: bool, taking_over: bool
) -> None:
    assert is_written(name, last, "s", taking_over=taking_over) is expected


@pytest.mark.parametrize(
    ("name", "last", "reason"),
    [
        (batch("q", 3), None, "is the first that sink 's' knows of"),
        (batch("q", 6), decided("q", 4), "older than the checkpoint"),
        (batch("q", 0), decided("p", 4), "belongs to query p"),
        (batch("q", 5), decided("p", 4), "belongs to query p"),
        (batch("k", 0), decided("k", 0, is_keyed=True), "belongs to query k"),
        (keyed("k"), decided("q", 4), "belongs to query q"),
        (keyed("q"), decided("q", 4), "belongs to query q"),
    ],
)
def test_what_could_double_or_lose_rows_is_refused_unless_the_user_takes_over(
    name: BatchName, last: Decision | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        is_written(name, last, "s", taking_over=False)
    assert not is_written(name, last, "s", taking_over=True)
