"""How fast marked replicas may be copied."""

import pytest

from odradek.config.definition import LONG_MAX
from odradek.model.ids import BrokerId
from odradek.replication.throttle import ReplicationThrottle
from odradek.security.buckets import Window


def throttle(rate: int) -> ReplicationThrottle:
    return ReplicationThrottle(BrokerId(3), lambda: rate, lambda: Window(sample_count=2, sample_seconds=1.0))


def test_without_a_rate_nothing_is_held_back() -> None:
    free = throttle(LONG_MAX)
    assert not free.is_active
    assert free.pause_s(0.0) == 0.0


@pytest.mark.parametrize(
    ("named", "covered"),
    [((), False), (("*",), True), (("0:3",), True), (("0:1", "1:3"), False), (("0:1", "0:3"), True)],
)
def test_the_topic_names_the_replicas_that_count(named: tuple[str, ...], covered: bool) -> None:
    assert throttle(1).covers(0, named) is covered


def test_what_was_copied_beyond_the_rate_is_waited_for() -> None:
    slow = throttle(100)
    slow.copied(90, 10.0)
    assert slow.pause_s(10.0) == 0.0
    slow.copied(210, 10.0)
    assert slow.pause_s(10.0) == pytest.approx(2.0)
    assert slow.pause_s(11.0) == pytest.approx(1.0)
    assert slow.pause_s(12.0) == 0.0


def test_a_rate_of_nothing_stops_all_after_the_first_copy() -> None:
    stopped = throttle(0)
    stopped.copied(1000, 0.0)
    assert stopped.pause_s(60.0) > 0.0
