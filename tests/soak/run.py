"""One run: three brokers, everything that clients do, and unrest; looked at every few seconds; read back at the end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.access.clients import ClientSettings
from tests.faults.client_thread import ClientThread
from tests.faults.workloads import PARTITIONS, SOURCE, WorkFindings, Workloads
from tests.faults.writers import Findings, Writer, check, read_topic
from tests.hostile.attack import TARGET_TOPIC, log_of
from tests.hostile.latencies import Bystander
from tests.kit.cluster import cluster
from tests.soak.keyed import KEYED_PARTITIONS, KEYED_SETTINGS, KEYED_TOPIC, KeyedWriter, wrong_keys
from tests.soak.readers import NewGroupMember, ShareMember
from tests.soak.samples import Sampler, series
from tests.soak.slopes import Growth, growth
from tests.soak.unrest import Stranger, TopicChurn, Visitor

from odradek.cli.serving.broker_processes import Fleet

_LEDGER: Final = "ledger"
_LEDGER_PARTITIONS: Final = 3
_BYSTANDER_TOPIC: Final = "bystander"
_SETTLE_SECONDS: Final = 120.0
_EXPECTED_GROWTH: Final = frozenset({"data_bytes", "cpu_s"})
"""What grows with what was written and done, by right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    seconds: float
    seed: int
    look_every_s: float = 5.0
    ledger_per_second: int = 150
    work_per_second: int = 40
    keyed_per_second: int = 100
    frames_per_second: float = 40.0
    churn_pause_s: float = 5.0
    visit_pause_s: float = 90.0
    session_seconds: float = 6.0

    @classmethod
    def of(cls, seconds: float, seed: int, pace: float = 1.0) -> Self:
        """A short run looks more often, and has its visits all the same; `pace` is a part of the usual rates."""
        usual = cls(seconds=seconds, seed=seed)
        return replace(
            usual,
            look_every_s=max(min(seconds / 600, 10.0), 1.0),
            ledger_per_second=max(round(usual.ledger_per_second * pace), 2),
            work_per_second=max(round(usual.work_per_second * pace), 1),
            keyed_per_second=max(round(usual.keyed_per_second * pace), 1),
            frames_per_second=usual.frames_per_second * pace,
            churn_pause_s=usual.churn_pause_s / pace,
            visit_pause_s=min(seconds / 5, 90.0),
        )


@dataclass(slots=True, kw_only=True)
class Result:
    """What was counted, and how the series went."""

    terms: Terms
    ledger: Findings = field(default_factory=Findings)
    work: WorkFindings | None = None
    wrongs: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    growths: list[Growth] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Nothing acknowledged is lost or doubled, and everyone was served; growth is for people to judge."""
        work_is_clean = self.work is None or self.work.is_clean
        return self.ledger.is_clean and work_is_clean and not any(self.wrongs.values())

    @property
    def growing(self) -> list[str]:
        """Series that grow, though nothing that was written explains it."""
        return [
            named.name
            for named in self.growths
            if named.is_growing and named.name.split()[-1] not in _EXPECTED_GROWTH
        ]

    def text(self) -> str:
        findings = self.ledger
        troubles = ", ".join(f"{count} x {name}" for name, count in self.troubles.most_common(8))
        return "\n".join(
            [
                f"ledger: acknowledged {findings.acknowledged_count:,}, read back {findings.read_count:,};"
                f" lost {len(findings.lost)}, doubled {len(findings.doubled)}, misplaced {len(findings.misplaced)}",
                *([] if self.work is None else self.work.text()),
                *(f"{name.replace('_', ' ')}: {count:,}" for name, count in self.counts.items()),
                f"errors that clients outlived: {troubles or 'none'}",
                *(
                    f"WRONG, {kind}: {len(what)}: {'; '.join(what[:3])}"
                    for kind, what in self.wrongs.items()
                    if what
                ),
                f"series that grow without a reason: {', '.join(self.growing) or 'none'}",
            ]
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.terms.seed,
            "seconds": self.terms.seconds,
            "is_clean": self.is_clean,
            "acknowledged": self.ledger.acknowledged_count,
            "lost": self.ledger.lost[:20],
            "doubled": self.ledger.doubled[:20],
            "misplaced": self.ledger.misplaced[:20],
            "work": None if self.work is None else self.work.as_json(),
            "wrongs": {kind: what[:20] for kind, what in self.wrongs.items() if what},
            "counts": self.counts,
            "troubles": dict(self.troubles),
            "growing": self.growing,
            "slopes_per_hour": {named.name: named.per_hour for named in self.growths},
        }


@dataclass(slots=True, kw_only=True)
class _Company:
    """All clients of a run."""

    writers: list[Writer]
    work: Workloads
    keyed: KeyedWriter
    new_members: list[NewGroupMember]
    share_members: list[ShareMember]
    churn: TopicChurn
    visitor: Visitor
    stranger: Stranger

    @property
    def threads(self) -> Sequence[ClientThread]:
        return (self.keyed, *self.new_members, *self.share_members, self.churn, self.visitor, self.stranger)


@contextmanager
def _broken_threads() -> Iterator[list[str]]:
    """What ended a thread before its time, while the block lasts."""
    broken: list[str] = []

    def note(failure: threading.ExceptHookArgs) -> None:
        name = failure.thread.name if failure.thread else "a thread"
        broken.append(f"{name}: {failure.exc_type.__name__}: {failure.exc_value}")

    before, threading.excepthook = threading.excepthook, note
    try:
        yield broken
    finally:
        threading.excepthook = before


def run(terms: Terms, directory: Path, file: Path, *, tell: Callable[[str], None]) -> Result:
    """Brokers live below `directory`; samples go to `file`. AssertionError when what was written cannot be read."""
    run_result = Result(terms=terms)
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": str(int(terms.session_seconds * 1000)),
        "auto.create.topics.enable": "false",
        "log.cleaner.backoff.ms": "5000",
    }
    with ExitStack() as ending:
        broken = ending.enter_context(_broken_threads())
        fleet = ending.enter_context(cluster(directory, settings, in_sync=2))
        _make_topics(fleet.bootstrap)
        bystander = ending.enter_context(Bystander(fleet.bootstrap, _BYSTANDER_TOPIC))
        company = _company(fleet, terms)
        for worker in (*company.writers, company.work, *company.threads):
            worker.start()
        _watch(Sampler(fleet, bystander, file), terms, tell)
        _finish(fleet, company, run_result, tell)
        _look_back(fleet, run_result)
        run_result.wrongs["threads that broke"] = broken
    run_result.growths = [growth(name, points) for name, points in sorted(series(file).items())]
    return run_result


def _make_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    topics = [
        NewTopic(_LEDGER, _LEDGER_PARTITIONS, 3),
        NewTopic(_BYSTANDER_TOPIC, 1, 3),
        NewTopic(TARGET_TOPIC, 4, 3),
        NewTopic(KEYED_TOPIC, KEYED_PARTITIONS, 3, config=KEYED_SETTINGS),
    ]
    for made in admin.create_topics(topics).values():
        made.result(30)
    _begin_early(admin)


def _begin_early(admin: AdminClient) -> None:
    """The share group reads from the beginning: it is there before the topic's first record counts."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, "sharers", incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(30)


def _company(fleet: Fleet, terms: Terms) -> _Company:
    address = fleet.bootstrap
    clients = ClientSettings(address=address)
    return _Company(
        writers=[
            Writer(
                f"w{number}",
                clients,
                _LEDGER,
                partitions=_LEDGER_PARTITIONS,
                per_second=max(terms.ledger_per_second // 2, 1),
            )
            for number in range(2)
        ],
        work=Workloads(clients, per_second=terms.work_per_second),
        keyed=KeyedWriter(address, per_second=terms.keyed_per_second),
        new_members=[NewGroupMember(number, address, SOURCE, "newcomers") for number in range(3)],
        share_members=[ShareMember(number, address, SOURCE, "sharers") for number in range(2)],
        churn=TopicChurn(address, pause_s=terms.churn_pause_s),
        visitor=Visitor(fleet.brokers[-1], random.Random(terms.seed), pause_s=terms.visit_pause_s),
        stranger=Stranger(fleet, terms.seed, per_second=terms.frames_per_second),
    )


def _watch(sampler: Sampler, terms: Terms, tell: Callable[[str], None]) -> None:
    """Watches until the time is over, or Ctrl-C: what was written until then is checked all the same."""
    ends = time.monotonic() + terms.seconds
    held_since = 0.0
    try:
        while (now := time.monotonic()) < ends:
            sampler.look()
            if now - held_since > 60.0:
                tell(f"{(ends - now) / 60:.0f} minutes to go")
                held_since = now
            time.sleep(max(min(now + terms.look_every_s, ends) - time.monotonic(), 0.0))
    except KeyboardInterrupt:
        tell("the run ends early; a second Ctrl-C ends the check, too")
    sampler.look()


def _finish(fleet: Fleet, company: _Company, run_result: Result, tell: Callable[[str], None]) -> None:
    """The unrest ends first, then the writers, then those who read what they wrote."""
    hanging = [company.visitor.finish(_SETTLE_SECONDS), company.stranger.finish(_SETTLE_SECONDS)]
    hanging += [company.churn.finish(_SETTLE_SECONDS), company.keyed.finish(_SETTLE_SECONDS)]
    unanswered = [writer.name for writer in company.writers if writer.finish(_SETTLE_SECONDS)]
    tell("everything is read back")
    run_result.work = company.work.finish(_SETTLE_SECONDS)
    clients = ClientSettings(address=fleet.bootstrap)
    sources = {message.value() for message in read_topic(clients, SOURCE, PARTITIONS, _SETTLE_SECONDS)}
    readers = {"the new group": company.new_members, "the share group": company.share_members}
    for group, members in readers.items():
        run_result.wrongs[f"not seen by {group}"] = _unseen(sources, members, _SETTLE_SECONDS)
        hanging += [member.finish(_SETTLE_SECONDS) for member in members]
    run_result.ledger = check(
        clients, _LEDGER, _LEDGER_PARTITIONS, company.writers, timeout_s=_SETTLE_SECONDS * 3
    )
    run_result.wrongs |= {
        "the ledger's writers": [writer.broken for writer in company.writers if writer.broken is not None],
        "not answered": unanswered,
        "keys whose last value is another": wrong_keys(fleet.bootstrap, company.keyed, _SETTLE_SECONDS),
        "did not end": [where for where in hanging if where is not None],
        "generated frames": company.stranger.faults,
    }
    for thread in company.threads:
        run_result.troubles.update(thread.troubles)
    run_result.counts = {
        "keys_written": sum(1 for _ in company.keyed.acknowledged),
        "topics_made_and_deleted": company.churn.made_count,
        "visits_of_the_third_broker": company.visitor.visits,
        "generated_frames": company.stranger.frame_count,
        "members_that_joined_the_new_group": sum(member.joined_count for member in company.new_members),
        "seen_by_the_new_group": len(set[bytes]().union(*(member.seen for member in company.new_members))),
        "seen_by_the_share_group": len(
            set[bytes]().union(*(share_member.seen for share_member in company.share_members))
        ),
    }


def _unseen(
    sources: set[bytes], members: Sequence[NewGroupMember | ShareMember], timeout_s: float
) -> list[str]:
    """What no member has seen, though each had time enough."""
    deadline = time.monotonic() + timeout_s
    missing = sources
    while time.monotonic() < deadline:
        missing = sources.difference(*(member.seen.copy() for member in members))
        if not missing:
            break
        time.sleep(0.5)
    return sorted(value.decode() for value in missing)


def _look_back(fleet: Fleet, run_result: Result) -> None:
    """What the brokers have to say."""
    ended = [str(broker.node_id) for broker in fleet.brokers if not broker.is_alive]
    tracebacks = [
        f"{count} in the log of broker {broker.node_id}"
        for broker in fleet.brokers
        if (count := log_of(broker).read_bytes().count(b"Traceback"))
    ]
    run_result.wrongs |= {"brokers that ended": ended, "tracebacks": tracebacks}
