"""The translator: every operator of a plan becomes a DataFrame once. What each kind does is in the modules of its
family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import TYPE_CHECKING

from odradek.model.lazy import lazy
from odradek.streams.plan.event_order import EventOrder, Reading, holds_back
from odradek.streams.plan.keyed import (
    Aggregated,
    Cogrouped,
    Folded,
    FoldedBy,
    ForeignKeyJoin,
    StreamStreamJoin,
    StreamTableJoin,
    Suppressed,
    TableTableJoin,
    WindowTableJoin,
)
from odradek.streams.plan.operators import (
    Filtered,
    Operator,
    Repartitioned,
    Selected,
    TopicSink,
    TopicSource,
    walk,
)
from odradek.streams.processors.failures import FailedRows, Letters
from odradek.streams.processors.task import ScriptStep
from odradek.streams.translation.frames import RecordFrame, moved_on
from odradek.streams.translation.spark_errors import in_one_line
from odradek.streams.translation.task_names import even_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.streams.restore.changelogs import StateChangelog
    from odradek.streams.translation import outputs
else:
    outputs = lazy("odradek.streams.translation.outputs")


def _no_letters(operator: str) -> Letters | None:
    return None


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks among which keys are divided. `changelogs` returns the changelog of an operator's state by its name; None:
    there are none. `script` is what a test does between its rows."""

    count: int
    changelogs: Callable[[str], StateChangelog] | None = None
    script: tuple[ScriptStep, ...] = ()
    letters: Callable[[str], Letters | None] = _no_letters
    """Returns, for an operator's name, how it writes letters for records that it refuses; None: they end the query."""
    topics: Mapping[int, str] = field(default_factory=dict)
    """The topics, by number of the source."""
    is_even: bool = True
    """Tasks have the names of `even_names`; otherwise their numbers, as in checkpoints of earlier versions."""

    @property
    def names(self) -> tuple[int, ...]:
        """The name that each task has in Spark."""
        return even_names(self.count) if self.is_even else tuple(range(self.count))

    def failures(self, operator: str) -> FailedRows:
        return FailedRows(operator=operator, letters=self.letters(operator), topics=dict(self.topics))


class Translator:
    """Translates a program's operators to DataFrames, each once.

    `read` returns the records of a topic, of a stream or of a test. `tasks`: into how many parts keys are divided.
    `tails`: outputs that are written on the way, by the operator where they turn off.
    """

    def __init__(
        self,
        *,
        spark: SparkSession,
        read: Callable[[TopicSource], RecordFrame],
        ends: Iterable[Operator],
        tasks: Tasks,
        tails: Mapping[Operator, Iterable[TopicSink]] | None = None,
    ) -> None:
        self.spark = spark
        self.read = read
        self.tasks = tasks
        ends = list(ends)
        self.wants_old = operators_with_old_values(ends)
        self.keep_null_keys = repartitions_with_null_keys(ends)
        self._tails = dict(tails or {})
        self.tail_frames: dict[TopicSink, RecordFrame] = {}
        """The frames of outputs that branch off on the way."""
        self.events = EventOrder(ends)
        self.reading: Reading = "written"
        """How the operator that is being translated is read."""
        self._frames: dict[tuple[Operator, Reading], RecordFrame] = {}

    def frame(self, operator: Operator, asked: Reading = "written") -> RecordFrame:
        reading = self.events.reading(operator, asked)
        frame = self._frames.get((operator, reading))
        if frame is None:
            reader, self.reading = self.reading, reading
            try:
                with in_one_line(operator.name):
                    frame = self._frames[operator, reading] = translate(operator, self)
            finally:
                self.reading = reader
            for sink in self._tails.get(operator, ()):
                frame = self._frames[operator, reading] = self._with_tail(operator, frame, sink, reading)
        return frame

    def inputs(self, operator: Operator) -> list[RecordFrame]:
        """Returns the frames that the current operator reads."""
        ways = self.events.ways(operator, self.reading)
        return [moved_on(self.frame(way.source, way.reading), way.steps, way.hops) for way in ways]

    def input(self, operator: Operator) -> RecordFrame:
        """Returns the frame that the current operator reads, if it has one input."""
        (frame,) = self.inputs(operator)
        return frame

    def says_latest(self, operator: Aggregated | Folded | FoldedBy | Cogrouped | TableTableJoin) -> bool:
        """Tells whether it emits, where it is read now, only the last update of each key of a batch."""
        return operator.emit == "latest" and self.reading == "written"

    def _with_tail(
        self, operator: Operator, frame: RecordFrame, sink: TopicSink, reading: Reading
    ) -> RecordFrame:
        """Adds the outputs that branch off here: their rows pass through in the rows that continue."""
        shared = dict(self._frames)
        held_back = reading != "written" and holds_back(operator)
        self._frames[operator, "written"] = outputs.doubled(frame, held_back=held_back)
        tail = self.tail_frames[sink] = self.frame(sink.inputs[0])
        written = outputs.outgoing(sink, tail)
        self._frames = shared
        return outputs.undoubled(frame, written)


@singledispatch
def translate(operator: Operator, translator: Translator) -> RecordFrame:
    raise NotImplementedError(f"nothing translates a {type(operator).__name__}")


def operators_with_old_values(ends: Iterable[Operator]) -> frozenset[Operator]:
    """Returns the tables whose updates must hold what they replace. Kafka Streams decides the same way which tombstones it may
    leave out.
    """
    wanted: set[Operator] = set()
    for operator in reversed(list(walk(*ends))):
        if isinstance(operator, Filtered) and _knows_old(operator):
            wanted.add(operator)
        if isinstance(operator, (Aggregated, Folded, FoldedBy)):
            wanted.update(source for source in operator.inputs if source.is_table)
        elif isinstance(operator, TableTableJoin):
            left, right = operator.inputs
            if operator.kind in ("left", "outer") or operator in wanted:
                wanted.add(left)
            if operator.kind == "outer" or operator in wanted:
                wanted.add(right)
        elif isinstance(operator, ForeignKeyJoin):
            wanted.update(operator.inputs[1:] if isinstance(operator, WindowTableJoin) else operator.inputs)
        elif operator in wanted and isinstance(operator, (Filtered, Selected, Suppressed)):
            wanted.update(operator.inputs)
    return frozenset(wanted)


def repartitions_with_null_keys(ends: Iterable[Operator]) -> frozenset[Operator]:
    """Returns the repartitions that a left or outer join of a stream reads, directly or not (KIP-962)."""
    reached: set[Operator] = set()
    for operator in reversed(list(walk(*ends))):
        relaxed = isinstance(operator, (StreamTableJoin, StreamStreamJoin)) and operator.kind != "inner"
        if relaxed or operator in reached:
            reached.update(operator.inputs)
    return frozenset(operator for operator in reached if isinstance(operator, Repartitioned))


def _knows_old(operator: Operator) -> bool:
    """Does a table know what an update replaces, though no operator asks? A filter of it leaves out deletes of nothing."""
    if isinstance(operator, (Filtered, Selected)):
        return operator.is_table and _knows_old(operator.inputs[0])
    return isinstance(operator, (Aggregated, Cogrouped, Folded, FoldedBy, TableTableJoin))
