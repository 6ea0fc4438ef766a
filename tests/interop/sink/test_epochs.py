"""An exactly-once sink when the epochs of its transactional ids are used up, and coordinators hand out new producer ids.

Epochs have 16 bits, and a batch takes two of them. Here every transactional id begins a few epochs before the last one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.interop.sink.plain_sink import PlainSink, batch

from odradek import Admin, ProducerFencedError
from odradek.client import NewTopic, TransactionIdentity
from odradek.spark.clients import connections
from odradek.spark.exactly_once.decision import Participant, driver_id
from odradek.spark.exactly_once.driver import BatchTerms
from odradek.testing import LocalBroker
from odradek.transactions import decisions
from odradek.transactions.state import EPOCH_MAX

BATCHES = 4
FIRST_EPOCHS = range(EPOCH_MAX - 5, EPOCH_MAX)
"""From each of these the last one is reached at another step of a batch."""
_numbers = itertools.count()


class Epochs:
    """Holds the epoch at which new transactional ids begin."""

    first = 0


@pytest.fixture(scope="module")
def epochs() -> Iterator[Epochs]:
    chosen = Epochs()
    original = decisions.init_producer

    def init_producer(current: Any, *given: Any, **more: Any) -> Any:
        change = original(current, *given, **more)
        if current is None:
            return replace(change, transaction=replace(change.transaction, producer_epoch=chosen.first))
        return change

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decisions, "init_producer", init_producer)
        yield chosen


@pytest.fixture(scope="module")
def servers(epochs: Epochs) -> Iterator[str]:
    with LocalBroker({"transaction.state.log.num.partitions": "1"}) as broker:
        yield broker.address
        connections.producer_pool.close()


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[Admin]:
    with Admin(servers) as made:
        yield made


class CountingSink(PlainSink):
    """Tasks run in this process, and so under the same names in every second batch. It notes which producer ids there were."""

    def __init__(self, admin: Admin, servers: str) -> None:
        name = f"rollover-{next(_numbers)}"
        super().__init__(admin, servers, name, name)
        self.producer_ids: dict[str, set[int]] = defaultdict(set)
        """The ids of the driver, and of each name of a task."""
        admin.create_topics([NewTopic(name, 1)])

    def write(self, terms: BatchTerms, value: bytes) -> Participant:
        participant = self.run_task(terms, value, has_own_process=False)
        name = f"{participant.writer} {terms.side} {participant.slot}"
        self.producer_ids["driver"].add(terms.driver.producer_id)
        self.producer_ids[name].add(participant.producer_id)
        return participant


@pytest.mark.parametrize("accident", ["none", "not decided", "not carried out", "carried out by half"])
def test_rows_are_there_once_while_producer_ids_change(
    epochs: Epochs, admin: Admin, servers: str, accident: str
) -> None:
    changed: list[str] = []
    for epochs.first in FIRST_EPOCHS:
        sink = CountingSink(admin, servers)
        driver = sink.driver()
        for number in range(BATCHES):
            terms = driver.begin()
            tasks = [sink.write(terms, b"%d" % number) for _ in range(2)]
            if accident == "not decided":
                terms = driver.begin()
                tasks = [sink.write(terms, b"%d" % number)]
            with pytest.MonkeyPatch.context() as patched:
                ended = {"not carried out": 0, "carried out by half": 1}.get(accident)
                if ended is not None:
                    patched.setattr(
                        driver,
                        "carry_out",
                        lambda decision, ended=ended: admin.end_transactions(
                            decision.identities()[:ended], committed=True
                        ),
                    )
                driver.decide(terms, batch(number), tasks, {})
            driver = sink.driver()
        driver.begin()
        copies = 1 if accident == "not decided" else 2
        assert sink.committed() == [b"%d" % number for number in range(BATCHES) for _ in range(copies)]
        changed += [who for who, ids in sink.producer_ids.items() if len(ids) > 1]
    assert changed.count("driver") == len(FIRST_EPOCHS)
    assert len(changed) > changed.count("driver"), "no task got a new producer id"


def test_a_driver_whose_producer_id_was_replaced_cannot_decide(
    epochs: Epochs, admin: Admin, servers: str
) -> None:
    for epochs.first in (EPOCH_MAX - 2, EPOCH_MAX - 1):
        sink = CountingSink(admin, servers)
        old = sink.driver()
        old_terms = old.begin()
        task = sink.write(old_terms, b"old")
        newer = sink.driver()
        terms = newer.begin()
        while terms.driver.producer_id == old_terms.driver.producer_id:
            terms = newer.begin()
        with pytest.raises(ProducerFencedError, match="another query uses sink"):
            old.decide(old_terms, batch(0), [task], {})
        newer.decide(terms, batch(0), [sink.write(terms, b"new")], {})
        assert sink.committed() == [b"new"]


def test_a_task_of_before_the_change_disturbs_no_task_of_after_it(
    epochs: Epochs, admin: Admin, servers: str
) -> None:
    """It runs late, in the same process. Nothing tells which of the two producer ids is newer."""
    epochs.first = EPOCH_MAX - 1
    sink = CountingSink(admin, servers)
    driver = sink.driver()
    old_terms, terms = driver.begin(), driver.begin()
    assert old_terms.driver.producer_id != terms.driver.producer_id
    task = sink.write(terms, b"new")
    sink.write(old_terms, b"old")
    driver.decide(terms, batch(0), [task], {})
    driver.sweep()
    assert sink.committed() == [b"new"]


def test_ending_a_transaction_again_is_no_error_after_its_epoch_was_the_last(
    epochs: Epochs, admin: Admin, servers: str
) -> None:
    for epochs.first in (EPOCH_MAX - 3, EPOCH_MAX - 2, EPOCH_MAX - 1):
        sink = CountingSink(admin, servers)
        driver = sink.driver()
        terms = driver.begin()
        task = sink.write(terms, b"a")
        driver.decide(terms, batch(0), [task], {})
        decision = sink.decided()
        assert decision is not None
        again: list[TransactionIdentity] = decision.identities()
        admin.end_transactions(again, committed=True)
        assert driver_id(sink.sink_id) == terms.driver.transactional_id
        assert sink.committed() == [b"a"]
