"""Which batches a sink writes: those that follow its last decision, each once."""

from __future__ import annotations

import pytest

from odradek.model.errors import ConfigError
from odradek.spark.exactly_once.decision import Decision, Namespace
from odradek.spark.exactly_once.task import BatchName, is_written


def decided(query: str, batch: int) -> Decision:
    namespace = Namespace(sink_id="s", incarnation="0123abcd", side=0)
    return Decision(query=query, batch=batch, namespace=namespace, participants=())


def asked(name: BatchName, before: Decision | None, *, taking_over: bool = False) -> bool:
    return is_written(name, before, "s", taking_over=taking_over)


def test_the_first_batch_of_a_new_sink_is_written() -> None:
    assert not asked(BatchName(query="a", batch=0), None)


def test_the_next_batch_is_written_and_older_ones_are_not() -> None:
    assert not asked(BatchName(query="a", batch=5), decided("a", 4))
    assert asked(BatchName(query="a", batch=4), decided("a", 4))
    assert asked(BatchName(query="a", batch=0), decided("a", 4))


@pytest.mark.parametrize(
    ("name", "before", "reason"),
    [
        (BatchName(query="b", batch=0), decided("a", 4), "belongs to query a"),
        (BatchName(query="a", batch=3), None, "first that sink 's' knows of"),
        (BatchName(query="a", batch=6), decided("a", 4), "does not follow"),
    ],
)
def test_a_decision_that_does_not_lead_to_the_batch_is_refused_unless_the_user_takes_over(
    name: BatchName, before: Decision | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        asked(name, before)
    assert not asked(name, before, taking_over=True)


def test_taking_over_does_not_write_what_is_written() -> None:
    assert asked(BatchName(query="a", batch=4), decided("a", 4), taking_over=True)


def test_a_key_is_written_unless_it_was_the_last() -> None:
    assert not asked(BatchName(query="k2", batch=0, is_keyed=True), decided("k1", 0))
    assert asked(BatchName(query="k1", batch=0, is_keyed=True), decided("k1", 0))
