"""What happens to the brokers: each fault is begun, lasts a while, and is mended; who it hits is chosen by role."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.faults.access.clients import OBSERVER, ClientSettings
from tests.kit.waiting import seconds_until

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet

_ASK_SECONDS: Final = 5.0
_IN_SYNC_SECONDS: Final = 60.0
_LOOKS: Final = 5
_LOOK_SECONDS: Final = 0.3
_ROLES: Final = ("leader", "controller", "follower", "anyone")


@dataclass(frozen=True, slots=True)
class Happened:
    """One fault, for the report."""

    kind: str
    victim: str
    began: float
    seconds: float


@dataclass(slots=True)
class Nemesis:
    """`faults` are names of `_FAULTS`, or of what a site adds; each `strike` does one, and returns when it is mended."""

    fleet: Fleet
    clients: ClientSettings
    topic: str
    random: random.Random
    session_seconds: float
    extra: dict[str, Callable[[Nemesis], str]] = field(default_factory=dict)
    history: list[Happened] = field(default_factory=list)

    def kinds(self) -> list[str]:
        return [*_FAULTS, *self.extra]

    def strike(self, kind: str) -> Happened:
        began = time.monotonic()
        fault = self.extra.get(kind) or _FAULTS[kind]
        victim = fault(self)
        happened = Happened(kind, victim, began, time.monotonic() - began)
        self.history.append(happened)
        return happened

    def summary(self) -> Counter[str]:
        return Counter(strike.kind for strike in self.history)

    # -- choosing

    def victim(self) -> tuple[str, BrokerProcess]:
        """A live broker, by a role drawn."""
        role = self.random.choice(_ROLES)
        chosen = self._by_role(role)
        alive = [broker for broker in self.fleet.brokers if broker.is_alive]
        broker = next(
            (process for process in alive if process.node_id == chosen), None
        ) or self.random.choice(alive)
        return f"{role} {broker.node_id}", broker

    def _by_role(self, role: str) -> int | None:
        try:
            admin = self._admin()
            if role == "controller":
                controller = (
                    admin.describe_cluster(request_timeout=_ASK_SECONDS).result(_ASK_SECONDS).controller
                )
                return None if controller is None else int(controller.id)
            partitions: Any = (
                admin.list_topics(self.topic, timeout=_ASK_SECONDS).topics[self.topic].partitions
            )
            partition = self.random.choice(list(partitions.values()))
            if role == "leader":
                return int(partition.leader)
            followers = [replica for replica in partition.replicas if replica != partition.leader]
            return self.random.choice(followers) if role == "follower" and followers else None
        except (KafkaException, KeyError, TimeoutError):
            return None  # no one answers now: anyone will do

    def _admin(self) -> AdminClient:
        return AdminClient({**self.clients.of(OBSERVER), "log_level": 0})

    def is_in_sync(self, node_id: int) -> bool:
        """Whether all replicas of the topic that this broker has are in sync."""
        try:
            admin = self._admin()
            metadatas = admin.list_topics(self.topic, timeout=_ASK_SECONDS).topics[self.topic].partitions
        except (KafkaException, KeyError):
            return False
        return bool(metadatas) and all(
            node_id in partition.isrs for partition in metadatas.values() if node_id in partition.replicas
        )

    def are_all_in_sync(self) -> bool:
        """Whether every replica of every topic is, internal ones included: then any broker's disk may go."""
        try:
            admin = self._admin()
            topics = admin.list_topics(timeout=_ASK_SECONDS).topics.values()
        except KafkaException:
            return False
        partitions = [partition for topic in topics for partition in topic.partitions.values()]
        return bool(partitions) and all(
            set(partition.isrs) == set(partition.replicas) for partition in partitions
        )

    def are_all_in_sync_for_long(self) -> bool:
        """Right after a start the state may still be that of before the broker said what it lacks."""
        for _ in range(_LOOKS):
            if not self.are_all_in_sync():
                return False
            time.sleep(_LOOK_SECONDS)
        return True

    def pause(self, low: float, high: float) -> None:
        time.sleep(self.random.uniform(low, high))


def _kill(nemesis: Nemesis) -> str:
    who, broker = nemesis.victim()
    broker.kill()
    nemesis.pause(0.0, 1.5 * nemesis.session_seconds)
    revive(broker)
    return who


def _kill_and_revive_at_once(nemesis: Nemesis) -> str:
    who, broker = nemesis.victim()
    broker.kill()
    revive(broker)
    return who


def _kill_two(nemesis: Nemesis) -> str:
    """A majority: what the third has alone is not acknowledged."""
    brokers = nemesis.random.sample(nemesis.fleet.brokers, 2)
    for broker in brokers:
        broker.kill()
    nemesis.pause(0.0, 1.5 * nemesis.session_seconds)
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.wait_until_ready()
    return " and ".join(str(broker.node_id) for broker in brokers)


def _kill_all(nemesis: Nemesis) -> str:
    for broker in nemesis.fleet.brokers:
        if broker.is_alive:
            broker.kill()
    for broker in nemesis.random.sample(nemesis.fleet.brokers, len(nemesis.fleet.brokers)):
        broker.start()
    for broker in nemesis.fleet.brokers:
        broker.wait_until_ready()
    return "all"


def _stop_short(nemesis: Nemesis) -> str:
    who, broker = nemesis.victim()
    with _stopped(broker):
        nemesis.pause(0.2, 0.6 * nemesis.session_seconds)
    return who


def _stop_long(nemesis: Nemesis) -> str:
    """Stops a broker for longer than its session: others take over, and it wakes up as a zombie."""
    who, broker = nemesis.victim()
    with _stopped(broker):
        nemesis.pause(1.2 * nemesis.session_seconds, 2.0 * nemesis.session_seconds)
    return who


def _restart(nemesis: Nemesis) -> str:
    who, broker = nemesis.victim()
    broker.stop()
    revive(broker)
    return who


def _rolling_restart(nemesis: Nemesis) -> str:
    for broker in nemesis.fleet.brokers:
        broker.stop()
        revive(broker)
        nemesis.pause(0.0, 1.0)
    return "all, one after another"


def _wipe(nemesis: Nemesis) -> str:
    """Its whole disk goes while the others have everything; it comes back empty, and fetches what it had."""
    if seconds_until(nemesis.are_all_in_sync_for_long, _IN_SYNC_SECONDS) is None:
        return "no one: someone was out of sync all the time"
    who, broker = nemesis.victim()
    broker.kill()
    _empty(broker.terms.directory)
    nemesis.pause(0.0, 1.5 * nemesis.session_seconds)
    revive(broker)
    return f"{who}, {_whole_again(nemesis)}"


def _restore(nemesis: Nemesis) -> str:
    """A backup of its disk is put in the place of what it took since."""
    if seconds_until(nemesis.are_all_in_sync_for_long, _IN_SYNC_SECONDS) is None:
        return "no one: someone was out of sync all the time"
    who, broker = nemesis.victim()
    home = broker.terms.directory
    with tempfile.TemporaryDirectory(prefix="backup-", dir=home.parent) as backup:
        broker.stop()
        shutil.copytree(home, backup, dirs_exist_ok=True)
        revive(broker)
        nemesis.pause(0.5, 2.0 * nemesis.session_seconds)
        if seconds_until(nemesis.are_all_in_sync_for_long, _IN_SYNC_SECONDS) is None:
            return f"{who} only restarted: someone was out of sync all the time"
        broker.kill()
        _empty(home)
        shutil.copytree(backup, home, dirs_exist_ok=True)
    revive(broker)
    return f"{who}, {_whole_again(nemesis)}"


def _empty(home: Path) -> None:
    """The directory itself may be where a file system is mounted."""
    for child in home.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        else:
            child.unlink()


def _whole_again(nemesis: Nemesis) -> str:
    """The next fault may take what only this broker has, so it is waited for."""
    back_s = seconds_until(nemesis.are_all_in_sync_for_long, _IN_SYNC_SECONDS)
    return f"not whole within {_IN_SYNC_SECONDS:.0f} s" if back_s is None else f"whole after {back_s:.1f} s"


@contextmanager
def _stopped(broker: BrokerProcess) -> Iterator[None]:
    broker.pause()
    try:
        yield
    finally:
        broker.resume()


def revive(broker: BrokerProcess) -> None:
    broker.start()
    broker.wait_until_ready()


_FAULTS: Final[dict[str, Callable[[Nemesis], str]]] = {
    "kill -9": _kill,
    "kill -9, back at once": _kill_and_revive_at_once,
    "kill -9 of two": _kill_two,
    "kill -9 of all": _kill_all,
    "SIGSTOP, short": _stop_short,
    "SIGSTOP, longer than the session": _stop_long,
    "restart": _restart,
    "rolling restart": _rolling_restart,
    "wiped disk": _wipe,
    "older copy of a disk": _restore,
}
