"""What goes on beside the ledger: a writer's topic that is copied with exactly once, and read by a group that commits."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.access.clients import OWNER, SOURCE_WRITER, ClientSettings
from tests.faults.commits import Commits, CommitWatch
from tests.faults.copier import Copier, miscopied
from tests.faults.crew import Crew, Worker
from tests.faults.members import Member
from tests.faults.writers import Writer, read_topic

SOURCE: Final = "source"
COPIES: Final = "copies"
PARTITIONS: Final = 3
_COPIERS: Final = 2
_MEMBERS: Final = 3
COPIERS_GROUP: Final = "copiers"
READERS_GROUP: Final = "readers"
_END_SECONDS: Final = 75.0  # longer than librdkafka waits for an answer


@dataclass(slots=True)
class WorkFindings:
    """What the copiers and the readers of the group did wrong, if anything: `wrongs` by kind."""

    source_count: int = 0
    copied_count: int = 0
    commits_read: int = 0
    wrongs: dict[str, list[str]] = field(default_factory=dict)
    troubles: Counter[str] = field(default_factory=Counter)
    """Errors that the clients got, and that they outlived."""
    seconds_to_catch_up: float = 0.0
    replaced: list[str] = field(default_factory=list)
    """The clients whose library stood still (`standstill.py`)."""

    @property
    def is_clean(self) -> bool:
        return not any(self.wrongs.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source_count,
            "copied": self.copied_count,
            "commits_read": self.commits_read,
            "wrongs": {
                kind: wrong_records[:20] for kind, wrong_records in self.wrongs.items() if wrong_records
            },
            "troubles": dict(self.troubles),
            "seconds_to_catch_up": round(self.seconds_to_catch_up, 2),
            "clients_that_stood_still": self.replaced,
        }

    def text(self) -> list[str]:
        troubles = ", ".join(f"{count} x {name}" for name, count in self.troubles.most_common(6))
        return [
            f"copied {self.copied_count:,} of {self.source_count:,}, read_committed; caught up in"
            f" {self.seconds_to_catch_up:.1f} s; committed offsets read {self.commits_read:,} times",
            f"errors that copiers and readers outlived: {troubles or 'none'}",
            f"client libraries that locked themselves up, and were replaced: {', '.join(self.replaced) or 'none'}",
            *(
                f"  {kind}: {len(results)}: {', '.join(results[:5])}"
                for kind, results in self.wrongs.items()
                if results
            ),
        ]


class Workloads:
    """`talkative`: copiers and members log to standard error what they do.

    Begun with `start`, ended with `finish` (the cluster is whole by then), which says what they found."""

    def __init__(self, clients: ClientSettings, *, per_second: int, talkative: bool = False) -> None:
        self._clients = clients
        self._commits = Commits()
        self._writer = Writer(
            "s", clients, SOURCE, partitions=PARTITIONS, per_second=per_second, user=SOURCE_WRITER
        )
        self._talkative = talkative
        self._crew = Crew(
            [partial(self._copier, number) for number in range(_COPIERS)]
            + [partial(self._member, number) for number in range(_MEMBERS)]
        )
        self._watch = CommitWatch(clients, SOURCE, PARTITIONS, (COPIERS_GROUP, READERS_GROUP), self._commits)

    def _copier(self, number: int) -> Worker:
        return Copier(
            number,
            self._clients,
            SOURCE,
            COPIES,
            COPIERS_GROUP,
            self._commits,
            talkative=self._talkative,
        )

    def _member(self, number: int) -> Worker:
        return Member(number, self._clients, SOURCE, READERS_GROUP, self._commits, talkative=self._talkative)

    @property
    def replaced(self) -> list[str]:
        """The clients whose library stood still so far."""
        return self._crew.replaced

    def start(self) -> None:
        admin = AdminClient({**self._clients.of(OWNER), "log_level": 0})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (SOURCE, COPIES)])
        for future in made.values():
            future.result(30)
        self._writer.start()
        self._crew.start()
        self._watch.start()

    def finish(self, timeout_s: float) -> WorkFindings:
        work_findings = WorkFindings()
        began = time.monotonic()
        unanswered = self._writer.finish(timeout_s)
        behind = self._until_caught_up(began + timeout_s)
        work_findings.seconds_to_catch_up = time.monotonic() - began
        hanging = self._crew.finish(_END_SECONDS)
        self._watch.finish()
        sources = [message.value() for message in read_topic(self._clients, SOURCE, PARTITIONS, timeout_s)]
        copies = [message.value() for message in read_topic(self._clients, COPIES, PARTITIONS, timeout_s)]
        seen = set[bytes]().union(*(worker.seen for worker in self._crew if isinstance(worker, Member)))
        work_findings.source_count, work_findings.copied_count = len(sources), len(copies)
        work_findings.commits_read = self._commits.asked_count
        work_findings.wrongs = {
            **miscopied(sources, copies),
            "written twice": [value.decode() for value, count in Counter(sources).items() if count > 1],
            "written, and lost": self._lost(sources),
            "not seen by the group": sorted(value.decode() for value in set(sources) - seen),
            "committed offsets that went back": self._commits.gone_back,
            "not caught up": behind,
            "did not end": hanging,
            "not answered": [f"{unanswered} records"] if unanswered else [],
            "broken": [] if self._writer.broken is None else [self._writer.broken],
        }
        for worker in self._crew:
            work_findings.troubles.update(worker.troubles)
        work_findings.replaced = self._crew.replaced
        return work_findings

    def _until_caught_up(self, deadline: float) -> list[str]:
        """Waits until no group is behind; returns what is still behind at the deadline."""
        behind = ["no one answered"]
        while behind and time.monotonic() < deadline:
            try:
                behind = self._watch.behind()
            except KafkaException as error:
                behind = [str(error)]
            time.sleep(0.2)
        return behind

    def _lost(self, sources: list[bytes]) -> list[str]:
        there = set(sources)
        return [
            f"s:{number}" for number in self._writer.ledger.lost(lambda index: f"s:{index}".encode() in there)
        ]
