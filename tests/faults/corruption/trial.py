"""One trial: a copy of the data, damage to one broker's, that broker made the leader of all, and everything read."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.faults.corruption.damage import IDENTITY, IN_PLACE, REGISTRY, Damage, strike
from tests.faults.corruption.dataset import (
    ALL,
    BROKERS,
    REGISTER,
    TRIMMED,
    Dataset,
    expected_register,
    expected_trimmed,
    settings,
)
from tests.faults.power.reading_back import Finding, compare, read
from tests.faults.power.run import wait_until_in_sync
from tests.faults.power.witnesses import LEDGER, PARTITIONS, TRANSFERS
from tests.faults.replicas import differing_replicas
from tests.kit.cluster import cluster

from odradek.cli.serving.broker_processes import Fleet
from odradek.model.errors import OdradekError

VICTIM: Final = 1
_ASK_SECONDS: Final = 30.0
_LEAD_SECONDS: Final = 30.0
_MAY_REFUSE: Final = (IDENTITY, REGISTRY)


@dataclass(slots=True)
class Outcome:
    damages: list[Damage]
    was: str
    """The state of the brokers: killed, stopped or running."""
    refusal: str = ""
    finding: Finding = field(default_factory=Finding)

    def text(self) -> str:
        damages = "; ".join(str(damage) for damage in self.damages)
        return f"{self.was}: {damages}{f' -> refused: {self.refusal}' if self.refusal else ''}"


def try_stopped(
    dataset: Dataset, kinds: list[str], directory: Path, rng: random.Random, *, killed: bool
) -> Outcome:
    """Damage files of these kinds while no one runs, and start again."""
    with _copied(dataset.killed if killed else dataset.stopped, directory) as home:
        damages = [strike(home / f"broker-{VICTIM}", kind, rng) for kind in kinds]
        outcome = Outcome(
            [damage for damage in damages if damage is not None], "killed" if killed else "stopped"
        )
        with _fleet(home) as fleet:
            _start(fleet, outcome)
            if outcome.refusal:
                _after_a_refusal(fleet, home, dataset, outcome)
            else:
                _lead_and_compare(fleet, dataset, outcome)
        _compare_replicas(home, outcome)
        return outcome


def try_running(dataset: Dataset, kinds: list[str], directory: Path, rng: random.Random) -> Outcome:
    """Damage files of the leader of everything while it runs."""
    with _copied(dataset.stopped, directory) as home:
        outcome = Outcome([], "running")
        with _fleet(home) as fleet:
            fleet.start()
            _lead(fleet)
            damages = [strike(home / f"broker-{VICTIM}", kind, rng, doings=IN_PLACE) for kind in kinds]
            outcome.damages = [damage for damage in damages if damage is not None]
            _note(outcome, compare(fleet.bootstrap, dataset.testimony))
            _lead_and_compare(fleet, dataset, outcome)
        _compare_replicas(home, outcome)
        return outcome


@contextmanager
def _copied(source: Path, directory: Path) -> Iterator[Path]:
    home = directory / "trial"
    shutil.copytree(source, home, ignore=shutil.ignore_patterns("broker-?.log"))
    try:
        yield home
    finally:
        shutil.rmtree(home)


@contextmanager
def _fleet(home: Path) -> Iterator[Fleet]:
    """Yields brokers that are not started yet."""
    fleet = cluster(home, settings(), brokers=BROKERS, in_sync=2)
    try:
        yield fleet
    finally:
        fleet.stop()


def _start(fleet: Fleet, outcome: Outcome) -> None:
    """The victim may refuse to start, where that is right and it says why; the others only if what is shared is damaged."""
    for broker in fleet.brokers:
        broker.start()
    for broker in fleet.brokers:
        try:
            broker.wait_until_ready()
        except OdradekError as error:
            outcome.refusal = _one_line(error)
            is_shared = any(damage.kind == REGISTRY for damage in outcome.damages)
            may = is_shared or (
                broker.node_id == VICTIM and any(damage.kind in _MAY_REFUSE for damage in outcome.damages)
            )
            if not may or "Traceback" in str(error):
                outcome.finding.unusable.append(f"broker {broker.node_id} refused: {error}")


def _after_a_refusal(fleet: Fleet, home: Path, dataset: Dataset, outcome: Outcome) -> None:
    """The others serve everything; with a new directory, the broker comes back and is given all."""
    alive = [broker for broker in fleet.brokers if broker.is_alive]
    if not alive:
        return
    _note(outcome, compare(",".join(broker.address for broker in alive), dataset.testimony))
    for broker in fleet.brokers:
        if not broker.is_alive:
            (home / f"broker-{broker.node_id}").rename(home / f"refused-{broker.node_id}")
            broker.start()
            broker.wait_until_ready()
    _lead_and_compare(fleet, dataset, outcome)


def _lead_and_compare(fleet: Fleet, dataset: Dataset, outcome: Outcome) -> None:
    try:
        _lead(fleet)
        _note(outcome, compare(fleet.bootstrap, dataset.testimony))
        latest = {
            message.key().decode(): message.value().decode() for message in read(fleet.bootstrap, REGISTER, 1)
        }
        if latest != expected_register():
            outcome.finding.lost.append(f"{REGISTER} says {latest}")
        left = [
            (message.offset(), message.value().decode())
            for message in read(fleet.bootstrap, TRIMMED, 1, reset="earliest")
        ]
        if left != expected_trimmed():
            outcome.finding.lost.append(f"{TRIMMED} has {left[:2]} to {left[-2:]}: {len(left)} records")
        wait_until_in_sync(fleet.bootstrap, ALL)
    except (OdradekError, AssertionError, KafkaException) as error:
        outcome.finding.unusable.append(str(error))


def _lead(fleet: Fleet) -> None:
    """All replicas in sync, and the victim the leader of every partition that it has first."""
    wait_until_in_sync(fleet.bootstrap, ALL)
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap, "log_level": 0})
    deadline = time.monotonic() + _LEAD_SECONDS
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=_ASK_SECONDS).topics
        led_by_others = [
            TopicPartition(topic, number)
            for topic in ALL
            for number, partition in there[topic].partitions.items()
            if partition.leader != VICTIM
        ]
        if not led_by_others:
            return
        admin.elect_leaders(ElectionType.PREFERRED, led_by_others).result(_ASK_SECONDS)
        time.sleep(0.05)
    raise OdradekError(f"broker {VICTIM} could not be made the leader of {led_by_others}")


def _note(outcome: Outcome, finding: Finding) -> None:
    outcome.finding.acknowledged += finding.acknowledged
    for kind, examples in finding.everything().items():
        getattr(outcome.finding, kind).extend(examples)


def _compare_replicas(home: Path, outcome: Outcome) -> None:
    if any(damage.kind == REGISTRY for damage in outcome.damages) and outcome.refusal:
        return  # no one runs, nothing heals
    placement = [home / f"broker-{number + 1}" for number in range(BROKERS)]
    for topic in (LEDGER, TRANSFERS):
        outcome.finding.misplaced += differing_replicas(placement, topic, PARTITIONS)


def _one_line(error: OdradekError) -> str:
    return str(error).splitlines()[-1].strip()
