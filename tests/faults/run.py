"""One run: brokers start, writers write, the nemesis strikes, all heals, and everything is read back and compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.access.clients import OBSERVER, OWNER, ClientSettings
from tests.faults.access.guests import VISITS_PARTITIONS, AccessFindings, Guests
from tests.faults.access.rules import LEDGER, VISITS, make_rules
from tests.faults.gaps import by_fault
from tests.faults.nemesis import Happened, Nemesis
from tests.faults.replicas import differing_replicas
from tests.faults.site import BROKERS, Site
from tests.faults.standstill import left, stopped_clients
from tests.faults.workloads import COPIES, PARTITIONS, SOURCE, WorkFindings, Workloads
from tests.faults.writers import Findings, Writer, check

_HEAL_SECONDS: Final = 120.0


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
    faults_min: int = 0
    """So many there are to be, though it take up to twice as long."""
    rest_seconds: tuple[float, float] = (0.3, 2.0)
    zookeeper: bool = False
    """Coordinated by a real ZooKeeper, which suffers, too."""
    full: bool = False
    """The run has every fault that this machine allows: clocks that jump, a disk that fills up."""
    work_per_second: int = 60
    """Records for the copiers and the group, which go on beside the ledger; 0: without them."""
    secured: bool = False
    """Everyone logs in by SCRAM, has the rights that it needs and no others; guests come and go."""
    talkative: bool = False
    """Copiers and the group's members tell standard error what they do."""


@dataclass(slots=True)
class Result:
    terms: Terms
    faults: dict[str, int] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)
    unanswered: int = 0
    given_up: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Writers that ended before their time."""
    stood_still: list[str] = field(default_factory=list)
    """Writers whose client library locked itself up (`standstill.py`)."""
    gaps_s: dict[str, float] = field(default_factory=dict)
    """The longest time without an answer, by kind of fault."""
    seconds_to_full_isr: float = 0.0
    differing: list[str] = field(default_factory=list)
    work: WorkFindings | None = None
    access: AccessFindings | None = None
    """The findings about access rules of a secured cluster."""
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        work_is_clean = self.work is None or self.work.is_clean
        access_is_clean = self.access is None or self.access.is_clean
        wrongs = self.unanswered or self.broken or self.differing
        return self.findings.is_clean and work_is_clean and access_is_clean and not wrongs

    def as_json(self) -> dict[str, Any]:
        findings = self.findings
        return {
            "seed": self.terms.seed,
            "seconds": self.terms.seconds,
            "faults": self.faults,
            "acknowledged": findings.acknowledged_count,
            "without_place": findings.placeless_count,
            "read": findings.read_count,
            "lost": findings.lost[:20],
            "doubled": findings.doubled[:20],
            "misplaced": findings.misplaced[:20],
            "of_users_that_may_not_write": findings.foreign[:20],
            "unanswered": self.unanswered,
            "given_up": len(self.given_up),
            "broken": self.broken,
            "writers_that_stood_still": self.stood_still,
            "longest_gaps_s": {kind: round(seconds, 2) for kind, seconds in self.gaps_s.items()},
            "seconds_to_full_isr": round(self.seconds_to_full_isr, 2),
            "differing_replicas": self.differing,
            "work": None if self.work is None else self.work.as_json(),
            "access": None if self.access is None else self.access.as_json(),
            "absent": self.absent,
        }

    def text(self, seconds: float) -> str:
        findings = self.findings
        lines = [
            f"seed {self.terms.seed}, {seconds:.0f} s in all",
            *(f"  {count:4} x {kind}" for kind, count in sorted(self.faults.items())),
            f"  {sum(self.faults.values()):4} faults",
            f"acknowledged {findings.acknowledged_count:,} ({findings.placeless_count} without their place),"
            f" read back {findings.read_count:,}",
            f"lost {len(findings.lost)}, doubled {len(findings.doubled)}, misplaced {len(findings.misplaced)},"
            f" of users that may not write {len(findings.foreign)}",
            f"unanswered {self.unanswered}, given up by the client {len(self.given_up)}",
            *(f"broken: {what}" for what in self.broken),
            *(f"its client library locked itself up: writer {name}" for name in self.stood_still),
            "longest time without an answer, by fault, s: "
            + (", ".join(f"{kind} {gap:.1f}" for kind, gap in self.gaps_s.items()) or "below half a second"),
            f"all replicas in sync {self.seconds_to_full_isr:.1f} s after the last fault",
            f"replicas that differ: {self.differing or 'none'}",
            *([] if self.work is None else self.work.text()),
            *([] if self.access is None else self.access.text()),
            *(f"absent: {fault}: {reason}" for fault, reason in self.absent.items()),
        ]
        for name in ("lost", "doubled", "misplaced", "foreign"):
            examples = getattr(findings, name)[:5]
            if examples:
                lines.append(f"  {name}: {', '.join(examples)}")
        return "\n".join(lines)


def run(terms: Terms, directory: Path, *, tell: Callable[[str], None] = lambda line: None) -> Result:
    """Raises AssertionError when the cluster does not heal, or cannot be read."""
    run_result = Result(terms)
    tell(f"seed {terms.seed}: {BROKERS} brokers in {directory}")
    with ExitStack() as ending:
        site = Site.open(
            ending,
            directory,
            topic=LEDGER,
            session_seconds=terms.session_seconds,
            zookeeper=terms.zookeeper,
            full=terms.full,
            secured=terms.secured,
        )
        run_result.absent = site.absent
        _live(site, terms, run_result, tell)
        counts = {LEDGER: terms.partitions}
        if run_result.work is not None:
            counts |= {SOURCE: PARTITIONS, COPIES: PARTITIONS}
        placement = [broker.terms.directory for broker in site.fleet.brokers]
        run_result.differing = [
            differing_replica
            for name, count in counts.items()
            for differing_replica in differing_replicas(placement, name, count)
        ]
    return run_result


def _live(site: Site, terms: Terms, run_result: Result, tell: Callable[[str], None]) -> None:
    """Runs the clients and the faults, from the start of the brokers to their end."""
    with site.fleet:
        clients = site.clients
        if terms.secured:
            make_rules(clients)
        admin = AdminClient({**clients.of(OWNER), "log_level": 0})
        admin.create_topics([NewTopic(LEDGER, terms.partitions, 3)])[LEDGER].result(30)
        writers = [
            Writer(
                f"w{number}",
                clients,
                LEDGER,
                partitions=terms.partitions,
                per_second=max(terms.per_second // terms.writers, 1),
            )
            for number in range(terms.writers)
        ]
        work = _work(clients, terms)
        guests = _guests(site, terms, admin)
        for worker in (*writers, *([work] if work else []), *([guests] if guests else [])):
            worker.start()
        faults = _torment(site, terms, run_result, writers, tell)
        run_result.seconds_to_full_isr = _until_healed(clients, terms.partitions)
        tell(f"healed after {run_result.seconds_to_full_isr:.1f} s")
        _end(writers, run_result, 0 if work is None else len(work.replaced))
        run_result.given_up = [failure for writer in writers for failure in writer.failures]
        run_result.broken = [writer.broken for writer in writers if writer.broken is not None]
        gaps = [gap for writer in writers for gap in writer.watch.gaps]
        run_result.gaps_s = by_fault(gaps, [(fault.began, fault.kind) for fault in faults])
        run_result.work = work.finish(_HEAL_SECONDS) if work else None
        run_result.access = guests.findings() if guests else None
        run_result.findings = check(clients, LEDGER, terms.partitions, writers, timeout_s=300.0)
        _until_healed(clients, terms.partitions)


def _end(writers: list[Writer], run_result: Result, known: int) -> None:
    """What a client that stands still got no answer to may be there or not. So many others are known to stand still."""
    unanswered = {writer.name: count for writer in writers if (count := writer.finish(_HEAL_SECONDS))}
    explained = max(stopped_clients() - known, 0) if unanswered else 0
    run_result.stood_still = list(unanswered)[:explained]
    left.extend(writer for writer in writers if writer.name in run_result.stood_still)
    run_result.unanswered = sum(
        count for name, count in unanswered.items() if name not in run_result.stood_still
    )


def _guests(site: Site, terms: Terms, admin: AdminClient) -> Guests | None:
    if not terms.secured:
        return None
    admin.create_topics([NewTopic(VISITS, VISITS_PARTITIONS, 3)])[VISITS].result(30)
    return Guests(site.clients, [broker.address for broker in site.fleet.brokers], terms.seed)


def _work(clients: ClientSettings, terms: Terms) -> Workloads | None:
    if not terms.work_per_second:
        return None
    return Workloads(clients, per_second=terms.work_per_second, talkative=terms.talkative)


def _torment(
    site: Site, terms: Terms, run_result: Result, writers: list[Writer], tell: Callable[[str], None]
) -> list[Happened]:
    rng = random.Random(terms.seed)
    nemesis = Nemesis(site.fleet, site.clients, LEDGER, rng, terms.session_seconds, extra=site.faults())
    kinds = list(terms.kinds) or nemesis.kinds()
    began = time.monotonic()
    while (seconds := time.monotonic() - began) < terms.seconds or (
        len(nemesis.history) < terms.faults_min and seconds < 2 * terms.seconds
    ):
        happened = nemesis.strike(rng.choice(kinds))
        count = sum(len(writer.ledger) for writer in writers)
        tell(f"{happened.kind}: {happened.victim}, {happened.seconds:.1f} s; {count:,} records sent so far")
        nemesis.pause(*terms.rest_seconds)
    run_result.faults = dict(nemesis.summary())
    return nemesis.history


def _until_healed(clients: ClientSettings, partitions: int) -> float:
    """Seconds until every replica is in sync."""
    began = time.monotonic()
    admin = AdminClient({**clients.of(OBSERVER), "log_level": 0})
    state = "no one answered"
    while time.monotonic() < began + _HEAL_SECONDS:
        metadatas = admin.list_topics(LEDGER, timeout=10).topics[LEDGER].partitions
        state = str({number: (metadata.leader, metadata.isrs) for number, metadata in metadatas.items()})
        if len(metadatas) == partitions and all(
            len(partition.isrs) == BROKERS for partition in metadatas.values()
        ):
            return time.monotonic() - began
        time.sleep(0.1)
    raise AssertionError(f"not healed {_HEAL_SECONDS:.0f} s after the last fault: {state}")
