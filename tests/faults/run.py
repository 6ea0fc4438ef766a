"""One run: brokers start, writers write, the nemesis strikes, all heals, and everything is read back and compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.namespaces import HUB_ADDRESS, Places, hub
from tests.faults.nemesis import Nemesis
from tests.faults.replicas import differing_replicas
from tests.faults.writers import Findings, Writer, check

from odradek.cli.broker_processes import BrokerProcess, Fleet
from odradek.testing.zookeeper import ZooKeeperServer

_TOPIC: Final = "ledger"
_BROKERS: Final = 3
_HEAL_SECONDS: Final = 120.0
_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "3000",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a run is like. Sessions end after `session_seconds`."""

    seconds: float
    seed: int
    per_second: int = 1500
    writers: int = 3
    partitions: int = 6
    session_seconds: float = 3.0
    kinds: tuple[str, ...] = ()
    """Faults to draw from; all that can be done here, without any."""
    rest_seconds: tuple[float, float] = (0.5, 4.0)
    zookeeper: bool = False
    """Coordinated by a real ZooKeeper, which suffers, too."""


@dataclass(slots=True)
class Result:
    terms: Terms
    faults: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    unanswered: int = 0
    given_up: list[str] = field(default_factory=list)
    longest_gap_s: float = 0.0
    seconds_to_full_isr: float = 0.0
    differing: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.findings.is_clean and not self.unanswered and not self.differing

    def as_json(self) -> dict[str, Any]:
        found = self.findings
        return {
            "seed": self.terms.seed,
            "seconds": self.terms.seconds,
            "faults": self.faults,
            "acknowledged": found.acknowledged_count,
            "read": found.read_count,
            "lost": found.lost[:20],
            "doubled": found.doubled[:20],
            "misplaced": found.misplaced[:20],
            "unanswered": self.unanswered,
            "given_up": len(self.given_up),
            "longest_gap_s": round(self.longest_gap_s, 2),
            "seconds_to_full_isr": round(self.seconds_to_full_isr, 2),
            "differing_replicas": self.differing,
        }

    def text(self, seconds: float) -> str:
        found = self.findings
        lines = [
            f"seed {self.terms.seed}, {seconds:.0f} s in all",
            *(f"  {count:4} x {kind}" for kind, count in sorted(self.faults.items())),
            f"  {sum(self.faults.values()):4} faults",
            f"acknowledged {found.acknowledged_count:,}, read back {found.read_count:,}",
            f"lost {len(found.lost)}, doubled {len(found.doubled)}, misplaced {len(found.misplaced)}",
            f"unanswered {self.unanswered}, given up by the client {len(self.given_up)}",
            f"longest time without an acknowledgement {self.longest_gap_s:.1f} s",
            f"all replicas in sync {self.seconds_to_full_isr:.1f} s after the last fault",
            f"replicas that differ: {self.differing or 'none'}",
        ]
        for name in ("lost", "doubled", "misplaced"):
            examples = getattr(found, name)[:5]
            if examples:
                lines.append(f"  {name}: {', '.join(examples)}")
        return "\n".join(lines)


def run(terms: Terms, directory: Path, *, tell: Callable[[str], None] = lambda line: None) -> Result:
    """Raises AssertionError when the cluster does not heal, or cannot be read."""
    result = Result(terms)
    tell(f"seed {terms.seed}: {_BROKERS} brokers in {directory}")
    with ExitStack() as ending:
        site = Site.open(ending, terms, directory)
        fleet = ending.enter_context(site.fleet)
        admin = AdminClient({"bootstrap.servers": fleet.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(_TOPIC, terms.partitions, 3)])[_TOPIC].result(30)
        writers = [
            Writer(
                f"w{number}",
                fleet.bootstrap,
                _TOPIC,
                partitions=terms.partitions,
                per_second=max(terms.per_second // terms.writers, 1),
            )
            for number in range(terms.writers)
        ]
        for writer in writers:
            writer.start()
        _torment(site, terms, result, writers, tell)
        result.seconds_to_full_isr = _until_healed(fleet, terms.partitions)
        tell(f"healed after {result.seconds_to_full_isr:.1f} s")
        result.unanswered = sum(writer.finish(_HEAL_SECONDS) for writer in writers)
        result.given_up = [failure for writer in writers for failure in writer.failures]
        result.longest_gap_s = max(writer.longest_gap_s for writer in writers)
        result.findings = check(fleet.bootstrap, _TOPIC, terms.partitions, writers, timeout_s=300.0)
        _until_healed(fleet, terms.partitions)
    result.differing = differing_replicas(
        [directory / f"broker-{node_id}" for node_id in range(1, _BROKERS + 1)], _TOPIC, terms.partitions
    )
    return result


@dataclass(slots=True)
class Site:
    """Where the brokers are: on loopback, or each in a network namespace; and who coordinates them."""

    fleet: Fleet
    places: Places | None = None
    zookeeper: ZooKeeperServer | None = None

    @classmethod
    def open(cls, ending: ExitStack, terms: Terms, directory: Path) -> Site:
        session_ms = str(int(terms.session_seconds * 1000))
        settings = {**_SETTINGS, "broker.session.timeout.ms": session_ms}
        places = ending.enter_context(Places(range(1, _BROKERS + 1))) if hub() else None
        zookeeper = None
        if terms.zookeeper:
            bound = {"clientPortAddress": "0.0.0.0"} if places else {}
            zookeeper = ending.enter_context(ZooKeeperServer(directory / "zookeeper", settings=bound))
            host = HUB_ADDRESS if places else "127.0.0.1"
            settings["zookeeper.connect"] = f"{host}:{zookeeper.port}/odradek"
            settings["zookeeper.session.timeout.ms"] = session_ms
        fleet = Fleet.plan(_BROKERS, directory, settings=settings)
        if places:
            fleet = Fleet([_moved(broker, places) for broker in fleet.brokers])
        return cls(fleet, places, zookeeper)

    def extra(self) -> dict[str, Callable[[Nemesis], str]]:
        """Faults that this site can have beside those of every site."""
        found: dict[str, Callable[[Nemesis], str]] = {}
        if self.places is not None:
            found["network partition"] = self._partition
        if self.zookeeper is not None:
            found["restart of ZooKeeper"] = self._restart_zookeeper
            found["SIGSTOP of ZooKeeper"] = self._stop_zookeeper
        return found

    def _partition(self, nemesis: Nemesis) -> str:
        assert self.places is not None
        with self.places.partition(nemesis.random) as what:
            nemesis.pause(0.5, 2.5 * nemesis.session_seconds)
        return what

    def _restart_zookeeper(self, nemesis: Nemesis) -> str:
        assert self.zookeeper is not None
        self.zookeeper.kill()
        nemesis.pause(0.0, nemesis.session_seconds)
        self.zookeeper.start()
        return "ZooKeeper"

    def _stop_zookeeper(self, nemesis: Nemesis) -> str:
        """Longer than sessions last: when it wakes up, it ends those that it did not hear of."""
        assert self.zookeeper is not None
        self.zookeeper.pause()
        nemesis.pause(nemesis.session_seconds, 1.5 * nemesis.session_seconds)
        self.zookeeper.resume()
        return "ZooKeeper"


def _moved(broker: BrokerProcess, places: Places) -> BrokerProcess:
    node_id = broker.node_id
    listen = f"{places.address(node_id)}:9092"
    return BrokerProcess(replace(broker.terms, listen=listen, prefix=places.prefix(node_id)))


def _torment(
    site: Site, terms: Terms, result: Result, writers: list[Writer], tell: Callable[[str], None]
) -> None:
    rng = random.Random(terms.seed)
    nemesis = Nemesis(site.fleet, _TOPIC, rng, terms.session_seconds, extra=site.extra())
    kinds = list(terms.kinds) or nemesis.kinds()
    end = time.monotonic() + terms.seconds
    while time.monotonic() < end:
        happened = nemesis.strike(rng.choice(kinds))
        count = sum(len(writer.acknowledged) for writer in writers)
        tell(f"{happened.kind}: {happened.victim}, {happened.seconds:.1f} s; {count:,} records sent so far")
        nemesis.pause(*terms.rest_seconds)
    result.faults = dict(nemesis.summary())


def _until_healed(fleet: Fleet, partitions: int) -> float:
    """Seconds until every replica is in sync."""
    began = time.monotonic()
    admin = AdminClient({"bootstrap.servers": fleet.bootstrap, "log_level": 0})
    state = "nobody answered"
    while time.monotonic() < began + _HEAL_SECONDS:
        found = admin.list_topics(_TOPIC, timeout=10).topics[_TOPIC].partitions
        state = str({number: (one.leader, one.isrs) for number, one in found.items()})
        if len(found) == partitions and all(len(one.isrs) == _BROKERS for one in found.values()):
            return time.monotonic() - began
        time.sleep(0.1)
    raise AssertionError(f"not healed {_HEAL_SECONDS:.0f} s after the last fault: {state}")
