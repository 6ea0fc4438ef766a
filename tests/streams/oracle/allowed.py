"""The differences from Kafka Streams that are on purpose, each with its reason. Everything else is a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.streams.oracle.comparison import Output, OutputDifference, last_values
from tests.streams.oracle.direct import DirectProgram
from tests.streams.oracle.documents import stores, upstream
from tests.streams.oracle.generator import Document, Node
from tests.streams.oracle.kafkas_ways import KAFKAS_WAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAllowance:
    """`covers` says whether a difference in a document is of this kind."""

    name: str
    covers: Callable[[Document, OutputDifference], bool]
    why: str


def _sliding_as_kafkas(document: Document, difference: OutputDifference) -> bool:
    sliding = any((node.get("window") or {}).get("kind") == "sliding" for node in document["nodes"])
    return sliding and _as_kafkas(document, difference)


def _versions_as_kafkas(document: Document, difference: OutputDifference) -> bool:
    versioned = any(node.get("versioned") is not None for node in document["nodes"])
    return versioned and _as_kafkas(document, difference)


def _as_kafkas(document: Document, difference: OutputDifference) -> bool:
    """With the stores and the suppress of Kafka, ours would write just that."""
    written = DirectProgram(document, ways=KAFKAS_WAYS).batch(document["inputs"])
    same_key = [record for record in written[difference.topic] if json.dumps(record[0]) == difference.key]
    if document.get("emit") == "latest" and last_values(same_key) == difference.theirs:
        return True
    return same_key == difference.theirs or _deletes_of_nothing(document, replace(difference, ours=same_key))


def _within(fewer: list[Output], more: list[Output]) -> bool:
    """Is `more` all of `fewer`, in this order, with others between?"""
    rest = iter(more)
    return all(record in rest for record in fewer)


def _deletes_missing(document: Document, difference: OutputDifference) -> bool:
    """Theirs lacks deletes of sessions of one moment that a filter has seen."""
    sessions = any((node.get("window") or {}).get("kind") == "session" for node in document["nodes"])
    filtered = any(node["op"] == "filter" for node in document["nodes"])
    ours, theirs = (
        [record for record in side if record[1] is not None] for side in (difference.ours, difference.theirs)
    )
    return sessions and filtered and ours == theirs and _within(difference.theirs, difference.ours)


_SEVERAL_UPDATES = {"flatMap", "flatMapValues", "regroup", "merge", "joinTables", "joinForeign"}
"""What may change a row several times for one record."""


def _overtaken(document: Document, difference: OutputDifference) -> bool:
    """Theirs lacks updates that another one of the same moment follows at once, or deletes of what was not there, below a
    join by foreign key whose left rows may change several times for one record, or together with right ones.
    """
    nodes = {node["id"]: node for node in document["nodes"]}
    joins = [node for node in document["nodes"] if node["op"] == "joinForeign"]
    if any(_sources(nodes, node["left"]) & _sources(nodes, node["right"]) for node in joins):
        return _without_overtaken(difference.ours, difference.theirs)
    above = [node["left"] for node in joins]
    for name in above:
        above += upstream(nodes[name])
    several = any(nodes[name]["op"] in _SEVERAL_UPDATES for name in above)
    return several and _without_overtaken(difference.ours, difference.theirs)


def _sources(nodes: dict[str, Node], name: str) -> set[str]:
    return {name}.union(*(_sources(nodes, above) for above in upstream(nodes[name])))


def _joined_with_itself(document: Document, difference: OutputDifference) -> bool:
    """Below a join of two tables that are looked up in one store."""
    nodes, of_tables = {node["id"]: node for node in document["nodes"]}, stores(document)
    (sink,) = [
        node for node in document["nodes"] if node.get("topic") == difference.topic and node["op"] == "to"
    ]
    above = [nodes[name] for name in _sources(nodes, sink["id"])]
    return any(
        node["op"] == "joinTables" and of_tables[node["left"]] & of_tables[node["right"]] for node in above
    )


def _without_overtaken(ours: list[Output], theirs: list[Output]) -> bool:
    places = {0}
    for number, record in enumerate(ours):
        following = ours[number + 1][2] if number + 1 < len(ours) else None
        left_out = places if following == record[2] or record[1] is None else set()
        places = left_out | {place + 1 for place in places if place < len(theirs) and theirs[place] == record}
    return len(theirs) in places


def _deletes_of_nothing(document: Document, difference: OutputDifference) -> bool:
    """The same but for deletes of what is not there, of windows that a filter has seen."""
    windowed = any(node.get("window") is not None for node in document["nodes"])
    filtered = any(node["op"] == "filter" for node in document["nodes"])
    return windowed and filtered and _effective(difference.ours) == _effective(difference.theirs)


def _effective(records: list[Output]) -> list[Output]:
    kept: list[Output] = []
    for record in records:
        if record[1] is not None or (kept and kept[-1][1] is not None):
            kept.append(record)
    return kept


def _unmatched_later(document: Document, difference: OutputDifference) -> bool:
    """The same records in another order, or fewer of theirs, and what is missing there has no match."""
    joins = [node for node in document["nodes"] if node["op"] == "joinStreams" and node["how"] != "inner"]
    ours, theirs = (Counter(map(json.dumps, side)) for side in (difference.ours, difference.theirs))
    extra = [json.loads(record) for record in (ours - theirs)]
    return bool(joins) and not theirs - ours and all(value and "-" in value[0] for _, value, _ in extra)


ALLOWED = (
    ProgramAllowance(
        name="a filtered window that was not there is not deleted",
        covers=_deletes_of_nothing,
        why="Kafka says of a new window that it replaces the initial aggregate, or that of the window before; when that would "
        "have passed the filter and the window does not, it deletes what was never there.",
    ),
    ProgramAllowance(
        name="sliding windows know all records, and are final when nothing can change them any more",
        covers=_sliding_as_kafkas,
        why="Kafka's store of sliding windows hides windows a step too early, so that a later one lacks records; its "
        "suppress says a window when stream time is its end and the grace, though records of that time still change it, and "
        "then says it again.",
    ),
    ProgramAllowance(
        name="a deleted value of the same timestamp stays deleted",
        covers=_versions_as_kafkas,
        why="Kafka's versioned store forgets a delete that replaces a value of the same timestamp, unless an older value ended "
        "there: a late record is then the latest again. Ours knows the delete.",
    ),
    ProgramAllowance(
        name="a session of one moment leaves a filter",
        covers=_deletes_missing,
        why="Kafka says of a session of one moment that changes that it replaces nothing: a filter that no longer lets it "
        "through then leaves its delete out, and what follows keeps what is not true any more.",
    ),
    ProgramAllowance(
        name="an update that another one overtakes in a join by foreign key",
        covers=_overtaken,
        why="When one record changes a left row twice, Kafka drops the answer to the first change: the row is another one when "
        "the answer comes. Ours says both.",
    ),
    ProgramAllowance(
        name="a table that is joined with itself",
        covers=_joined_with_itself,
        why="Kafka looks the new row up on both sides, since both are one store: it says the pair twice, takes back a pair "
        "that never was, and an inner join never says that the row was deleted. Ours changes one side after the other.",
    ),
    ProgramAllowance(
        name="unmatched records are said earlier",
        covers=_unmatched_later,
        why="Kafka looks for records without match less often than it could: the least timestamp that it remembers moves "
        "past windows that are still open, and it takes the wrong side's length where before and after differ. We say "
        "them as soon as stream time has passed their window and grace.",
    ),
)


def allowance(document: Document, difference: OutputDifference) -> ProgramAllowance | None:
    return next((candidate for candidate in ALLOWED if candidate.covers(document, difference)), None)
