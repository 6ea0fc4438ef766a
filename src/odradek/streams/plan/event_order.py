"""The order in which the effects of one record reach an operator along several ways, and which updates of a table it gets.

The order is Kafka Streams' own: depth first, in the order in which a program makes its operators. Rows that go through a
repartition come after all others. Lookups see a table change at the moment when its store is written. Does not import Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import count
from typing import Final, Literal, NamedTuple, TypeAlias

from odradek.streams.plan.keyed import (
    Aggregated,
    Cogrouped,
    Folded,
    FoldedBy,
    ForeignKeyJoin,
    Processed,
    ProcessorOutput,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    WindowTableJoin,
)
from odradek.streams.plan.operators import (
    AsTable,
    Filtered,
    Operator,
    Repartitioned,
    Selected,
    TopicSource,
    walk,
)

Reading: TypeAlias = Literal["written", "every", "stored"]
"""The way an operator is read. `written`: as it emits, with `emit="latest"` once a batch. `every`: each update. `stored`: each
update, at the moment when its store is written, as a lookup sees it.
"""
TABLE_TURN: Final = -1
"""The turn of a table that a stream looks up: before everything that the same update causes."""
SIDE_TURNS: Final = (-2, -1)
"""The turns of both sides of a join of tables that a stream looks up."""


class Way(NamedTuple):
    """The way from an operator to one that it reads. `steps` extend the order of its records, `hops` counts repartitions."""

    source: Operator
    reading: Reading
    steps: tuple[int, ...]
    hops: int


class EventOrder:
    """The order of events in the plan that ends in these operators."""

    def __init__(self, ends: Iterable[Operator]) -> None:
        plan = list(walk(*ends))
        in_turn = sorted(plan, key=lambda operator: operator.built)
        self._turns = dict(zip(in_turn, count()))
        ways: Counter[Operator | str] = Counter()
        for operator in plan:
            ways.update(map(_junction, operator.inputs))
            if isinstance(operator, TopicSource) and operator.table:
                ways[operator.topic] += 1
        self._junctions = {junction for junction, several in ways.items() if several > 1}

    @property
    def is_tree(self) -> bool:
        """Tells whether each operator, and each topic, is read in one place only."""
        return not self._junctions

    def reading(self, operator: Operator, asked: Reading) -> Reading:
        """Returns how to read an operator for the reading asked: a store is written whenever its operator emits an update."""
        if not operator.is_table:
            return "written"
        if asked == "stored" and _is_view(operator):
            return asked
        return "written" if asked == "written" or not holds_back(operator) else "every"

    def ways(self, operator: Operator, reading: Reading) -> list[Way]:
        """Returns the way to each input of an operator."""
        return [self._way(operator, number, reading) for number in range(len(operator.inputs))]

    def source_steps(self, source: TopicSource) -> tuple[int, ...]:
        """Returns the steps of a table's topic, which others may read, too."""
        return (self._turns[source],) if source.table and source.topic in self._junctions else ()

    def _way(self, operator: Operator, number: int, reading: Reading) -> Way:
        source = operator.inputs[number]
        steps = (self._turns[operator],) if _junction(source) in self._junctions else ()
        hops = repartitions(operator, number) if self._junctions else 0
        if not source.is_table or not operator.is_table:
            if isinstance(operator, StreamTableJoin) and number == 1:
                return Way(source, "stored", (), 0)
            return Way(source, "written", steps, hops)
        if _is_view(operator):
            return Way(source, reading, () if reading == "stored" else steps, hops)
        return Way(source, "written" if reading == "written" else "every", steps, hops)

    def answer_hops(self, operator: Operator) -> int:
        """Returns the repartitions of an operator's output: a foreign-key join answers the left side through a topic."""
        return int(bool(self._junctions) and _answers(operator))


def _junction(source: Operator) -> Operator | str:
    """Returns where ways part: streams of one topic read the same records."""
    return source.topic if isinstance(source, TopicSource) and not source.table else source


def holds_back(table: Operator) -> bool:
    """Tells whether a table, or one that it is made of, emits fewer than all updates."""
    return table.is_table and (getattr(table, "emit", None) == "latest" or any(map(holds_back, table.inputs)))


def repartitions(operator: Operator, number: int) -> int:
    """Counts the repartitions that Kafka Streams has on the way from this input."""
    source = operator.inputs[number]
    match operator:
        case Repartitioned():
            return 1
        case ForeignKeyJoin():
            return int(number == 0 and _answers(operator))
        case Aggregated() | Folded() | FoldedBy() | Processed():
            return int(source.is_table or operator.key is not None or has_new_key(source))
        case Cogrouped():
            return int(operator.keys[number] is not None or has_new_key(source))
        case StreamTableJoin():
            if number or _joins_global_table(operator):
                return 0
            return int(operator.on is not None or has_new_key(source))
        case StreamStreamJoin() | AsTable():
            return int(has_new_key(source))
    return 0


def has_new_key(stream: Operator) -> bool:
    """Has a stream another key than the topic that it was in last?"""
    match stream:
        case Selected() if stream.key is not None:
            return True
        case Processed() | ProcessorOutput():
            return True
        case Repartitioned() | StreamStreamJoin():
            return False
        case StreamTableJoin() if not _joins_global_table(stream):
            return stream.on is not None
        case StreamTableJoin():
            return has_new_key(stream.inputs[0])
    return not stream.is_table and any(has_new_key(source) for source in stream.inputs if not source.is_table)


def _is_view(table: Operator) -> bool:
    """Tells whether a table has no store: a lookup in it reads the stores that it is made of."""
    return isinstance(table, (Filtered, Selected, TableTableJoin))


def _answers(operator: Operator) -> bool:
    return isinstance(operator, ForeignKeyJoin) and not isinstance(operator, WindowTableJoin)


def _joins_global_table(join: StreamTableJoin) -> bool:
    table = join.inputs[1]
    return isinstance(table, TopicSource) and table.everywhere
