"""An exactly-once sink on three brokers, of which the one that matters most dies in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.interop.sink.plain_sink import PlainSink, batch

from odradek import Admin
from odradek.client import NewTopic
from odradek.spark.clients import connections
from odradek.spark.exactly_once.decision import Decision, driver_id, participant_id
from odradek.spark.options.sink_ids import group_of
from odradek.testing import Cluster

TASKS = 3
SETTINGS = {
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running
        connections.producer_pool.close()


@pytest.fixture(autouse=True)
def everyone_is_there(cluster: Cluster) -> Iterator[None]:
    """A broker that a test killed is revived for the next."""
    yield
    for broker in cluster.brokers:
        if not broker.is_alive:
            broker.start()
            broker.wait_until_ready()


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.address) as made:
        yield made


def write_batch(sink: PlainSink, number: int, at: dict[str, Callable[[], None]]) -> None:
    """Begin it, write it, decide it; `at` says what to do in between."""
    driver = sink.driver()
    terms = driver.begin()
    at.get("begun", _nothing)()
    tasks = [
        sink.run_task(terms, b"%d" % number, partition=task, has_own_process=False) for task in range(TASKS)
    ]
    at.get("written", _nothing)()
    carry_out = driver.carry_out

    def kill_and_carry_out(decision: Decision) -> None:
        at.get("decided", _nothing)()
        carry_out(decision)

    driver.carry_out = kill_and_carry_out  # type: ignore[method-assign]
    driver.decide(terms, batch(number), tasks, {})


def _nothing() -> None:
    pass


def broker_of(sink: PlainSink, what: str) -> int:
    """The broker that matters."""
    if what == "leader":
        return sink.admin.describe_topics([sink.topic])[sink.topic].partitions[0].leader
    if what == "coordinator of the group":
        group = group_of(sink.sink_id)
        return sink.admin.describe_groups([group])[group].coordinator
    name = driver_id(sink.sink_id)
    if what == "coordinator of a task":
        decision = sink.decided()
        assert decision is not None
        first = decision.participants[0]
        name = participant_id(sink.sink_id, first.writer, 1 - decision.side, first.slot)
    return sink.admin.describe_transactions([name])[name].coordinator


@pytest.mark.parametrize(
    ("victim", "moment"),
    [
        ("coordinator of the driver", "written"),
        ("coordinator of a task", "decided"),
        ("coordinator of the group", "begun"),
        ("leader", "written"),
    ],
)
def test_a_batch_is_there_once_although_a_broker_dies_in_its_middle(
    cluster: Cluster, admin: Admin, victim: str, moment: str
) -> None:
    name = f"{victim}-{moment}".replace(" ", "-")
    sink = PlainSink(admin, cluster.address, name, name, TASKS)
    admin.create_topics([NewTopic(sink.topic, TASKS)])
    for number in range(2):
        write_batch(sink, number, {})
    chosen = broker_of(sink, victim)
    write_batch(sink, 2, {moment: cluster.broker(chosen).kill})
    write_batch(sink, 3, {})
    assert sink.committed() == [b"0", b"1", b"2", b"3"] * TASKS
