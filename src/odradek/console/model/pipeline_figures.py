"""A pipeline as its page shows it: lag, rates between two moments, and its graph from topics to topics. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from odradek.console.model.snapshot import UNKNOWN
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument, runs_of
from odradek.pipelines.outline import OutputOutline
from odradek.pipelines.status import Phase, PipelineStatus

RATE_SPAN_MIN_MS: Final = 2_000
_WORST_FIRST: Final = (Phase.FAILED, Phase.BACKING_OFF, Phase.WAITING, Phase.STARTING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSample:
    """The progress of one run at one moment."""

    at_ms: int
    version: int
    pid: int | None
    positions: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProgress:
    """A version of a pipeline that runs, or is to run: what is wanted, what it does, and how far it is."""

    key: str
    document: PipelineDocument
    status: PipelineStatus | None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The end offsets of its inputs, and of the topics that it writes to."""
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The records that each input partition has beyond what was read; UNKNOWN where the partition was deleted."""
    read_rates: Mapping[str, float] = field(default_factory=dict)
    """Records a second that it reads from each topic. Empty before two moments were seen."""
    written_rates: Mapping[str, float] = field(default_factory=dict)
    """Records a second that are appended to each topic that it writes to, also by others."""

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def is_candidate(self) -> bool:
        """Whether it is a version that is being rebuilt while another one runs."""
        return self.key != self.document.name

    @property
    def state(self) -> str:
        """Its phase; `unknown` where no supervisor has reported it."""
        return "unknown" if self.status is None else self.status.phase.value

    @property
    def lag(self) -> int:
        """The records that all inputs have beyond what was read; UNKNOWN where it is not known of one of them."""
        lags = self.lags.values()
        return sum(lags) if lags and min(lags) >= 0 else UNKNOWN

    @property
    def rate(self) -> float | None:
        """Records a second that it reads; None before two moments were seen."""
        return sum(self.read_rates.values()) if self.read_rates else None

    @property
    def outputs(self) -> tuple[OutputOutline, ...]:
        """The queries of its program; none before it has run once."""
        outline = None if self.status is None else self.status.outline
        return () if outline is None else outline.outputs

    def topic_lags(self) -> Counter[str]:
        """Returns the lag of each input topic, without partitions of which it is not known."""
        lags: Counter[str] = Counter()
        for tp, lag in self.lags.items():
            lags[tp.topic] += max(0, lag)
        return lags


def topics_of(status: PipelineStatus | None) -> tuple[set[str], set[str]]:
    """Returns the topics that a run reads, and those that it writes to."""
    if status is None:
        return set(), set()
    reads, writes = set(status.inputs or ()), set[str]()
    if status.outline is not None:
        reads |= set(status.outline.topics)
        writes = {topic for output in status.outline.outputs for topic in output.topics}
    return reads, writes


def measured(run: PipelineProgress, ends: Mapping[str, Mapping[TopicPartition, int]]) -> PipelineProgress:
    """Returns the run with its lag. `ends`: end offsets, by topic."""
    reads, writes = topics_of(run.status)
    own = {tp: end for topic in sorted(reads | writes) for tp, end in ends.get(topic, {}).items()}
    positions = {} if run.status is None else run.status.positions
    lags = {
        tp: max(0, own[tp] - position) if tp in own else UNKNOWN for tp, position in sorted(positions.items())
    }
    return replace(run, ends=own, lags=lags)


def pipeline_runs(
    documents: Iterable[PipelineDocument], statuses: Mapping[str, PipelineStatus]
) -> list[PipelineProgress]:
    """Returns a run for each version that is wanted, those that fail first."""
    runs = [
        PipelineProgress(key=key, document=wanted, status=statuses.get(key))
        for document in documents
        for key, wanted in runs_of(document).items()
    ]
    return sorted(runs, key=lambda run: (_rank(run.status), run.key))


def _rank(status: PipelineStatus | None) -> int:
    if status is None or status.phase not in _WORST_FIRST:
        return len(_WORST_FIRST)
    return _WORST_FIRST.index(status.phase)


def read_rates(samples: Iterable[RunSample]) -> dict[str, float]:
    """Returns the records a second that were read of each topic, between the first and the last sample of the same process."""
    return _rates([(sample, sample.positions) for sample in samples])


def written_rates(samples: Iterable[RunSample], topics: set[str]) -> dict[str, float]:
    """Returns the records a second that were appended to each of these topics."""
    rates = _rates([(sample, sample.ends) for sample in samples])
    return {topic: rate for topic, rate in rates.items() if topic in topics}


def _rates(moments: list[tuple[RunSample, Mapping[TopicPartition, int]]]) -> dict[str, float]:
    if not moments:
        return {}
    last, after = moments[-1]
    first, before = next(
        (sample, offsets)
        for sample, offsets in moments
        if (sample.version, sample.pid) == (last.version, last.pid)
    )
    span_ms = last.at_ms - first.at_ms
    if span_ms < RATE_SPAN_MIN_MS:
        return {}
    moved: Counter[str] = Counter()
    for tp, offset in after.items():
        if tp in before:
            moved[tp.topic] += max(0, offset - before[tp])
    return {topic: count * 1000 / span_ms for topic, count in moved.items()}
