"""The differences from Kafka Streams that are on purpose, each with its reason. Everything else is a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from tests.streams.oracle.comparison import Output, OutputDifference
from tests.streams.oracle.generator import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAllowance:
    """`covers` says whether a difference in a document is of this kind."""

    name: str
    covers: Callable[[Document, OutputDifference], bool]
    why: str


def _said_twice(document: Document, difference: OutputDifference) -> bool:
    """Theirs has a record twice, one after the other, where ours has it once."""
    sliding = any((node.get("window") or {}).get("kind") == "sliding" for node in document["nodes"])
    suppressed = any(node["op"] == "suppress" for node in document["nodes"])
    once = [
        record for number, record in enumerate(difference.theirs) if record not in difference.theirs[:number]
    ]
    return sliding and suppressed and once == difference.ours


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


def _null_keys_after_repartition(document: Document, difference: OutputDifference) -> bool:
    """Only theirs has records without key."""
    ops = {node["op"] for node in document["nodes"] if node.get("how", "left") != "inner"}
    joined = ops & {"joinStreams", "joinTable", "joinGlobal"}
    return "repartition" in ops and bool(joined) and difference.key == "null" and not difference.ours


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
        name="repartition leaves out null keys",
        covers=_null_keys_after_repartition,
        why="Kafka's repartition() leaves out null keys, unless a left or outer join follows, which can use them (KIP-962). "
        "Ours always leaves them out.",
    ),
    ProgramAllowance(
        name="a closed sliding window is said once",
        covers=_said_twice,
        why="A record may close a sliding window and change it again: Kafka's suppress then says the window twice.",
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
