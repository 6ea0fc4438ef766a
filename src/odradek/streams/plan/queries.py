"""Which outputs of a program one query writes: those that name the same one; each of the others has a query of its own.

A query has one output that needs all its state. The others turn off on the way there, at the last operator that they share with
it, and need only operators without state after it: so nothing is computed twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from odradek.model.errors import ConfigError
from odradek.model.ids import TOPIC_NAME_LENGTH_MAX
from odradek.streams.plan.keyed import ForeignKeyJoin
from odradek.streams.plan.operators import AsTable, FrameSource, Operator, TopicSink, TopicSource, walk

CHANGELOG_SUFFIX: Final = "-changelog"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedQuery:
    """A streaming query, and the outputs that it writes.

    `main`: the output at the end of the whole plan. `tails`: the other outputs, by the operator where they turn off.
    """

    name: str
    main: Operator
    tails: Mapping[Operator, tuple[TopicSink, ...]]

    @property
    def ends(self) -> list[Operator]:
        """All outputs of the query, the main one first."""
        return [self.main, *(sink for sinks in self.tails.values() for sink in sinks)]


def query_name(end: Operator) -> str:
    """Returns the name of the query that writes an output."""
    return (end.query or end.name) if isinstance(end, TopicSink) else end.name


def planned_queries(ends: Iterable[Operator]) -> list[PlannedQuery]:
    """Returns queries in the order of their first outputs. ConfigError for outputs that one query cannot write."""
    groups: dict[str, list[Operator]] = {}
    for end in ends:
        groups.setdefault(query_name(end), []).append(end)
    return [_planned(name, group) for name, group in groups.items()]


def sink_id(program: str, query: str) -> str:
    """Returns the id under which a query of a program commits."""
    return f"{program}.{query}"


def changelog_topic(sink: str, operator: str) -> str:
    """Returns the topic of an operator's state in the query that writes to a sink: each query has a state of its own."""
    return f"{sink}-{operator}{CHANGELOG_SUFFIX}"


def check_changelogs(program: str, ends: Iterable[Operator]) -> None:
    """Raises ConfigError where the states of two operators would be in one topic, or in one whose name is too long."""
    queries: dict[str, list[Operator]] = {}
    for end in ends:
        queries.setdefault(query_name(end), []).append(end)
    owners: dict[str, tuple[str, str]] = {}
    for query, group in queries.items():
        for operator in _names_of_states(group):
            topic = changelog_topic(sink_id(program, query), operator)
            if len(topic) > TOPIC_NAME_LENGTH_MAX:
                raise ConfigError(
                    f"the state of {operator!r:.80} in {query!r:.80} needs a topic whose name has {len(topic)} characters, and"
                    f" at most {TOPIC_NAME_LENGTH_MAX} are allowed: give program, output and operator shorter names"
                )
            owner = owners.setdefault(topic, (query, operator))
            if owner != (query, operator):
                raise ConfigError(
                    f"{owner[1]!r} in {owner[0]!r} and {operator!r} in {query!r} would keep their state in one topic: give one"
                    " of the outputs or operators another name"
                )


def _names_of_states(ends: Iterable[Operator]) -> Iterator[str]:
    for operator in walk(*ends):
        if operator.has_state or isinstance(operator, (AsTable, TopicSource)):
            yield operator.name
        if isinstance(operator, ForeignKeyJoin):
            yield f"{operator.name}-old"


def _planned(name: str, ends: list[Operator]) -> PlannedQuery:
    main = max(ends, key=lambda end: sum(map(_needs_main, walk(end))))
    tails: dict[Operator, tuple[TopicSink, ...]] = {}
    plan = set(walk(main))
    for end in ends:
        if end is not main:
            if not isinstance(end, TopicSink) or not isinstance(main, TopicSink):
                raise ConfigError(f"query {name!r}: {end.name} is called like it: give one another name")
            turning = _turning_off(name, main, end, plan)
            tails[turning] = (*tails.get(turning, ()), end)
    return PlannedQuery(name=name, main=main, tails=tails)


def _turning_off(name: str, main: TopicSink, tail: TopicSink, plan: set[Operator]) -> Operator:
    """Returns the last operator that an output shares with the main one."""
    operator: Operator = tail
    while operator not in plan:
        if _needs_main(operator) or len(operator.inputs) != 1:
            raise ConfigError(
                f"query {name!r} cannot write {tail.name}: {operator.name} is not on the way to {main.name}. Leave query= away"
                " there, or write what they share to a topic with through(...)"
            )
        (operator,) = operator.inputs
    if _paths(main)[operator] > 1:
        raise ConfigError(
            f"query {name!r} cannot write {tail.name}: {main.name} needs {operator.name} twice. Leave query= away there"
        )
    return operator


def _needs_main(operator: Operator) -> bool:
    """Tells whether an operator must be on the way to the main output: those with state, and sources."""
    return operator.has_state or isinstance(operator, (TopicSource, FrameSource, AsTable))


def _paths(end: Operator) -> Counter[Operator]:
    """Counts the ways on which each operator leads to an output."""
    paths: Counter[Operator] = Counter({end: 1})
    for operator in reversed(list(walk(end))):
        for source in operator.inputs:
            paths[source] += paths[operator]
    return paths
