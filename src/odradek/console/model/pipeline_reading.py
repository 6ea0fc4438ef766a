"""Reads the pipelines of a cluster when a page asks for them: the two topics of `odradek.pipelines`, and offsets of theirs.

The classes of `odradek.pipelines` are synchronous, so they run on a thread. A reading is used for some seconds, however many
pages show it. Rates come from the readings of the last minute.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from odradek.client import LATEST, Admin, PartialFailureError
from odradek.console.model.pipeline_figures import (
    PipelineProgress,
    RunSample,
    measured,
    pipeline_runs,
    read_rates,
    topics_of,
    written_rates,
)
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PIPELINES_TOPIC
from odradek.pipelines.membership import supervisor_of
from odradek.pipelines.store import PipelineStore
from odradek.protocol.acls import AclOperation
from odradek.runtime.ports import Clock
from odradek.runtime.shielded import outcome_of

FRESH_MS: Final = 3_000
HISTORY_MS: Final = 60_000
SAMPLES_MAX: Final = 40
RUNS_MAX: Final = 500
"""The runs whose history is kept, and so their rates: those that fail, then others by name."""
PARTITIONS_MAX: Final = 5_000
"""The partitions whose ends are read, of all pipelines together."""
PATIENCE_MS: Final = 10_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReading:
    """All pipelines at one moment."""

    read_ms: int
    runs: tuple[PipelineProgress, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Why documents cannot be read, by the pipeline's name."""
    supervisor: str | None = None
    supervisor_is_known: bool = True
    """False where the user may not describe the group of supervisors."""

    def of(self, name: str) -> list[PipelineProgress]:
        """Returns the runs of a pipeline: the current version, then a candidate. KafkaError if there is none."""
        if name in self.unreadable:
            raise KafkaError(ErrorCode.INVALID_RECORD, self.unreadable[name])
        runs = sorted((run for run in self.runs if run.name == name), key=lambda run: run.is_candidate)
        if not runs:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no pipeline {name!r:.250}")
        return runs


class PipelineReader:
    """The pipelines as one principal may see them. Used on the background loop."""

    def __init__(self, bootstrap: str, settings: ClientSettings, clock: Clock) -> None:
        self._bootstrap = bootstrap
        self._settings = {
            name: setting for name, setting in settings.items() if name != "default_api_timeout_ms"
        }
        self._clock = clock
        self._reading: PipelineReading | None = None
        self._under_way: asyncio.Task[PipelineReading] | None = None
        self._changing = asyncio.Lock()
        self._history: OrderedDict[str, deque[RunSample]] = OrderedDict()

    async def read(self) -> PipelineReading:
        """Returns the pipelines, as they were at most some seconds ago. Raises KafkaError."""
        reading = self._reading
        if reading is not None and self._clock.wall_ms() - reading.read_ms < FRESH_MS:
            return reading
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.get_running_loop().create_task(asyncio.to_thread(self._read))
        self._reading = self._with_rates(await outcome_of(self._under_way))
        return self._reading

    async def check_may_write(self) -> None:
        """Raises TOPIC_AUTHORIZATION_FAILED where the user may not write pipelines, or the brokers do not tell."""

        def operations() -> frozenset[AclOperation] | None:
            with self._store() as store:
                described = store.admin.describe_topics([PIPELINES_TOPIC], operations=True)
                return described[PIPELINES_TOPIC].authorized_operations

        if AclOperation.WRITE not in (await asyncio.to_thread(operations) or ()):
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"an upgrade runs a program on this machine: it needs the right to write topic {PIPELINES_TOPIC}",
            )

    async def change(self, work: Callable[[PipelineStore], T]) -> T:
        """Calls `work` with the store, on a thread; one change at a time. The next reading is a fresh one."""

        def call() -> T:
            with self._store() as store:
                return work(store)

        async with self._changing:
            try:
                return await asyncio.to_thread(call)
            finally:
                self._reading = None

    def _store(self) -> PipelineStore:
        return PipelineStore(self._bootstrap, clock=self._clock, patience_ms=PATIENCE_MS, **self._settings)

    def _read(self) -> PipelineReading:
        with self._store() as store:
            table = store.table()
            statuses = store.statuses() if table.documents else {}
            runs = pipeline_runs(table.documents.values(), statuses)
            owner, is_known = _owner(store.admin)
            ends = _ends(store.admin, runs)
        return PipelineReading(
            read_ms=self._clock.wall_ms(),
            runs=tuple(measured(run, ends) for run in runs),
            unreadable=table.unreadable,
            supervisor=owner,
            supervisor_is_known=is_known,
        )

    def _with_rates(self, reading: PipelineReading) -> PipelineReading:
        if self._reading is not None and self._reading.read_ms == reading.read_ms:
            return self._reading  # another page has waited for the same one
        runs = []
        for run in reading.runs[:RUNS_MAX]:
            samples = self._sampled(run, reading.read_ms)
            _, writes = topics_of(run.status)
            runs.append(
                replace(run, read_rates=read_rates(samples), written_rates=written_rates(samples, writes))
            )
        return replace(reading, runs=(*runs, *reading.runs[RUNS_MAX:]))

    def _sampled(self, run: PipelineProgress, at_ms: int) -> deque[RunSample]:
        samples = self._history.setdefault(run.key, deque(maxlen=SAMPLES_MAX))
        self._history.move_to_end(run.key)
        while len(self._history) > RUNS_MAX:
            self._history.popitem(last=False)
        if run.status is not None:
            samples.append(
                RunSample(
                    at_ms=at_ms,
                    version=run.status.version,
                    pid=run.status.pid,
                    positions=run.status.positions,
                    ends=run.ends,
                )
            )
        while samples and at_ms - samples[0].at_ms > HISTORY_MS:
            samples.popleft()
        return samples


def _owner(admin: Admin) -> tuple[str | None, bool]:
    """Returns who supervises, and whether the user may know it."""
    try:
        return supervisor_of(admin), True
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        return None, False


def _ends(admin: Admin, runs: Iterable[PipelineProgress]) -> dict[str, dict[TopicPartition, int]]:
    """Returns the ends of all partitions that the runs read, and of the topics that they write to, by topic; without those
    gone.
    """
    partitions: dict[TopicPartition, int] = {}
    topics: set[str] = set()
    for run in runs:
        if run.status is not None:
            partitions |= dict.fromkeys(run.status.positions, LATEST)
        topics |= topics_of(run.status)[1]
    partitions |= dict.fromkeys(_partitions_of(admin, topics), LATEST)
    if not partitions:
        return {}
    wanted = dict(sorted(partitions.items())[:PARTITIONS_MAX])
    try:
        offsets = admin.list_offsets(wanted)
    except PartialFailureError as error:
        offsets = dict(error.results)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        offsets = {}
    ends: dict[str, dict[TopicPartition, int]] = {}
    for tp, position in offsets.items():
        ends.setdefault(tp.topic, {})[tp] = position.offset
    return ends


def _partitions_of(admin: Admin, topics: set[str]) -> list[TopicPartition]:
    if not topics:
        return []
    try:
        descriptions = admin.describe_topics(sorted(topics))
    except PartialFailureError as error:
        descriptions = dict(error.results)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        descriptions = {}
    return [tp for description in descriptions.values() for tp in description.topic_partitions]
