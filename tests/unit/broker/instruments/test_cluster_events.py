"""Elections, changes of in-sync replicas, logins and idle time, as they are counted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

from odradek.broker.instruments.cluster_events import ElectionFigures, LoginFigures
from odradek.broker.metrics.server_families import IdleShare
from odradek.cluster.image import NO_LEADER, ClusterImage, PartitionImage, TopicImage
from odradek.model.ids import BrokerId, LeaderEpoch
from odradek.replication.leader_role import IsrCounts
from odradek.telemetry.metrics import Family

ONE, TWO = BrokerId(1), BrokerId(2)
EMPTY = ClusterImage(version=0, cluster_id="c", controller_id=ONE, brokers=(), topics={}, topics_by_id={})
LED = PartitionImage(leader=ONE, leader_epoch=LeaderEpoch(0), replicas=(ONE, TWO), isr=(ONE, TWO))


def image(*states: PartitionImage, topic_id: int = 1) -> ClusterImage:
    return EMPTY.with_topics([TopicImage(name="t", topic_id=UUID(int=topic_id), partitions=states)])


def values(families: list[Family]) -> dict[str, float]:
    return {family.name: value for family in families for _, value in family.samples}  # type: ignore[misc]


def test_elections_count_when_another_broker_leads() -> None:
    now = [100.0]
    elections = ElectionFigures(lambda: now[0])
    lost, moved = replace(LED, leader=NO_LEADER), replace(LED, leader=TWO, leader_epoch=LeaderEpoch(1))
    elections.note(EMPTY, image(LED, LED))  # a new topic is no election
    elections.note(image(LED, LED), image(LED, replace(LED, isr=(ONE,))))
    assert elections.count == 0
    assert "odradek_controller_seconds_since_failover" not in values(elections.families())
    elections.note(image(LED, LED), image(moved, LED))
    elections.note(image(LED, LED), image(lost, LED))
    now[0] = 130.0
    elections.note(image(lost, LED), image(replace(moved, recovering=True), LED))
    elections.note(image(LED), image(moved, topic_id=2))  # another topic of the same name
    shown = values(elections.families())
    assert shown["kafka_controller_controllerstats_leaderelections"] == 2
    assert shown["kafka_controller_controllerstats_leaderelectionrateandtimems_count"] == 2
    assert shown["kafka_controller_controllerstats_uncleanleaderelections"] == 1
    assert shown["odradek_controller_seconds_since_failover"] == 30.0


def test_an_isr_can_shrink_and_expand_at_once() -> None:
    counts = IsrCounts()
    counts.changed((ONE, TWO), (ONE,))
    counts.changed((ONE,), (ONE, TWO))
    counts.changed((ONE,), (TWO,))
    counts.changed((ONE, TWO), (TWO, ONE))
    assert (counts.shrinks, counts.expands) == (2, 2)


def test_logins_and_handshakes_that_failed_are_one_figure() -> None:
    logins = LoginFigures()
    for listener, reason in (("SASL", None), ("SASL", "wrong password"), ("SASL", "wrong password")):
        logins.note(SimpleNamespace(listener=listener, reason=reason))
    done, failed = logins.families(Counter({"SSL": 3}))
    assert dict(done.samples) == {'listener="SASL"': 1, 'listener="SSL"': 0}
    assert dict(failed.samples) == {'listener="SASL"': 2, 'listener="SSL"': 3}


def test_idle_time_is_of_the_last_minute_however_often_it_is_read() -> None:
    idle = IdleShare()
    assert idle.lately(0.0, 5.0) == 1.0
    assert idle.lately(10.0, 15.0) == 0.0, "the loop was busy for all of ten seconds"
    for second in range(11, 200):
        share = idle.lately(float(second), 15.0)
    assert share == 1.0
