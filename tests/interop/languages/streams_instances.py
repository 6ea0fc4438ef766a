"""Instances of one Kafka Streams application in processes of their own. A test kills one at a point that it chooses: in the
middle of a transaction, which the instance holds open (`java/Hold.java`) and the coordinator describes.

A wait that comes to nothing fails with all that is known: what the sinks got, the group, its offsets, the transactions, and the
ends of the logs.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Final, TypeVar

import pytest
from tests.interop.languages.applications import APPLICATIONS
from tests.interop.languages.prepare import AbsentError
from tests.interop.languages.sinks import Sink
from tests.kit.waiting import PATIENCE_S, eventually

from odradek.client import Admin, GroupDescription
from odradek.model.errors import ErrorCode, KafkaError, OdradekError

INTERRUPTED: Final = ("Ongoing", "PrepareAbort", "CompleteAbort")
"""The states of a transaction that does not commit: open, or aborted since the coordinator timed it out."""
_LOOK_EVERY_S: Final = 0.1
_LOG_LEVEL: Final = "-Dorg.apache.logging.log4j.level=INFO"
_LOG_CHARACTERS_MAX: Final = 8000
_END_SECONDS_MAX: Final = 60
T = TypeVar("T")


@dataclasses.dataclass(slots=True, kw_only=True)
class Instance:
    """A process of the application. Another one with its name goes on with the state on its disk."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    state: Path

    @property
    def status(self) -> str:
        code = self.process.poll()
        return "running" if code is None else f"ended with {code}"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_END_SECONDS_MAX)

    def process_id(self) -> str:
        """Returns the id that Streams keeps beside the state: it is part of the instance's transactional ids."""
        (file,) = self.state.glob("*/kafka-streams-process-metadata")
        return str(json.loads(file.read_text())["processId"])


class StreamsInstances:
    """The instances, what they commit, and the group that the coordinator makes of them."""

    def __init__(
        self, bootstrap: str, application_id: str, directory: Path, program: str, *arguments: str
    ) -> None:
        """`arguments`: those that follow the four that all programs have."""
        self.sinks: dict[str, Sink] = {}
        """What is committed, by topic."""
        self._bootstrap, self._application_id = bootstrap, application_id
        self._directory, self._program, self._arguments = directory, program, arguments
        self._holds = directory / "holds"
        self._holds.mkdir()
        self._armed_ms: dict[int, int] = {}
        self._started: list[Instance] = []
        self._admin = Admin(bootstrap)

    def read(self, topic: str, partitions: int) -> None:
        """Reads what the application commits to a topic."""
        self.sinks[topic] = Sink(self._bootstrap, topic, partitions)

    def start(self, name: str) -> Instance:
        """Starts an instance, with the state of the one that had its name before. Skips the test without Kafka Streams."""
        try:
            command = APPLICATIONS["kafka-streams"].ready()
        except AbsentError as reason:
            pytest.skip(f"absent: {reason}")
        state, log = self._directory / f"state-{name}", self._directory / f"{len(self._started)}-{name}.log"
        shared = (self._program, self._bootstrap, self._application_id, str(state), str(self._holds))
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        with log.open("wb") as written:
            process = subprocess.Popen(
                [command[0], _LOG_LEVEL, *command[1:], *shared, *self._arguments],
                stdout=written,
                stderr=written,
                cwd=self._directory,
                env=environment,
            )
        self._started.append(Instance(name=name, process=process, log=log, state=state))
        return self._started[-1]

    def wait_for_members(self, count: int) -> None:
        """Returns once the coordinator describes a stable group of so many members, all with tasks."""

        def is_shared() -> bool:
            group = self._look()
            return (
                group is not None
                and (group.state, len(group.members)) == ("Stable", count)
                and all(member.assignment for member in group.members)
            )

        self._wait(is_shared, f"{count} members with tasks")

    def wait_for_records(self, counts: Mapping[str, int]) -> None:
        """Returns once so many records are committed to the topics. The group is looked at meanwhile."""

        def are_committed() -> bool:
            for topic in counts:
                self.sinks[topic].read_some(0.1)
            self._look()
            return all(self.sinks[topic].count >= count for topic, count in counts.items())

        self._wait(are_committed, f"{dict(counts)} records in the sinks")

    def hold_at(self, line: int) -> None:
        """Holds the instance that processes this line. The line is not sent yet, and all that was sent before is committed."""
        self._armed_ms[line] = int(time.time() * 1000)
        (self._holds / f"hold-{line}").touch()

    def wait_until_held(self, line: int) -> Instance:
        """Returns the instance that is held at the line, once its transaction is open at the coordinator.

        The transaction has records of the line. When the instance is killed, it can only be aborted.
        """
        held = self._wait(lambda: self._held_at(line), f"an instance that is held at line {line}")
        assert held is not None
        transactional_ids = f".*{held.process_id()}.*"

        def is_interrupted() -> bool:
            names = [own.transactional_id for own in self._admin.list_transactions(pattern=transactional_ids)]
            return any(
                own.state in INTERRUPTED and (own.start_time_ms or 0) >= self._armed_ms[line]
                for own in self._admin.describe_transactions(names).values()
            )

        self._wait(is_interrupted, f"an open transaction of {held.name}, {transactional_ids}")
        return held

    def _held_at(self, line: int) -> Instance | None:
        pids = [int(path.name.rpartition("-")[2]) for path in self._holds.glob(f"held-{line}-*")]
        return next((instance for instance in self._started if instance.process.pid in pids), None)

    def _look(self) -> GroupDescription | None:
        """Returns the group, or None before it is there. AssertionError if a task is in two members."""
        try:
            group = self._admin.describe_groups([self._application_id])[self._application_id]
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            return None
        owned = Counter(partition for member in group.members for partition in set(member.assignment))
        doubled = {partition: count for partition, count in owned.items() if count > 1}
        assert not doubled, f"read by two members at once: {doubled}\n{self.report()}"
        return group

    def _wait(self, look: Callable[[], T], what: str) -> T:
        def look_at_processes_too() -> T:
            ended = [
                instance for instance in self._started if instance.process.poll() not in (None, -SIGKILL)
            ]
            assert not ended, f"{ended[0].name} {ended[0].status}, before there were {what}\n{self.report()}"
            return look()

        return eventually(
            look_at_processes_too,
            lambda: f"{what}\n{self.report()}",
            seconds=PATIENCE_S,
            every_s=_LOOK_EVERY_S,
        )

    def report(self) -> str:
        """Returns all that is known about the application: the message of a test that fails."""
        described: dict[str, Callable[[], object]] = {
            "group": lambda: self._admin.describe_groups([self._application_id]),
            "offsets": lambda: self._admin.list_group_offsets(self._application_id),
            "transactions": self._transactions,
        }
        lines = [f"read: { {topic: sink.count for topic, sink in self.sinks.items()} }"]
        for title, describe in described.items():
            try:
                lines.append(f"{title}: {describe()}")
            except OdradekError as reason:
                lines.append(f"{title}: {reason}")
        lines.append(f"holds: {sorted(path.name for path in self._holds.iterdir())}")
        for instance in self._started:
            text = instance.log.read_text(errors="replace")[-_LOG_CHARACTERS_MAX:]
            lines.append(f"--- {instance.name}, process {instance.process.pid}, {instance.status}\n{text}")
        return "\n".join(lines)

    def _transactions(self) -> object:
        names = [listing.transactional_id for listing in self._admin.list_transactions()]
        return self._admin.describe_transactions(names)

    def close(self) -> None:
        for instance in self._started:
            instance.kill()
        self._admin.close()
        for sink in self.sinks.values():
            sink.close()


@contextmanager
def streams_instances(
    bootstrap: str, application_id: str, directory: Path, program: str, *arguments: str
) -> Iterator[StreamsInstances]:
    """The instances of an application, none of which outlives the test."""
    instances = StreamsInstances(bootstrap, application_id, directory, program, *arguments)
    try:
        yield instances
    finally:
        instances.close()
