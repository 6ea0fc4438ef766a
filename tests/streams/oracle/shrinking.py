"""Makes a failing document small: drops records, outputs and operators as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.streams.oracle.documents import kinds, pruned, replaced, sinks, upstream
from tests.streams.oracle.generator import GLOBAL, STREAM, TABLE, Document, Node

Fails = Callable[[list[Document]], list[bool]]
"""Which of these documents fail? Asked in batches, because a batch costs little more than one."""

BATCH = 24
_ROUNDS_MAX = 40


def shrink(document: Document, fails: Fails) -> Document:
    """A document that fails, of which no single record or operator can be left out; the given one if none is smaller."""
    for _ in range(_ROUNDS_MAX):
        smaller = _first_failing(document, fails)
        if smaller is None:
            return document
        document = smaller
    return document


def _first_failing(document: Document, fails: Fails) -> Document | None:
    batch: list[Document] = []
    for candidate in smaller_ones(document):
        batch.append(candidate)
        if len(batch) == BATCH:
            failing = _failing(batch, fails)
            if failing is not None:
                return failing
            batch = []
    return _failing(batch, fails) if batch else None


def _failing(batch: list[Document], fails: Fails) -> Document | None:
    return next((candidate for candidate, failed in zip(batch, fails(batch), strict=True) if failed), None)


def smaller_ones(document: Document) -> Iterator[Document]:
    """Documents with less in them, the boldest first."""
    yield from _fewer_outputs(document)
    yield from _fewer_records(document, at_least=4)
    yield from _fewer_operators(document)
    yield from _fewer_records(document, at_least=1)
    yield from _plainer_fields(document)


def _fewer_outputs(document: Document) -> Iterator[Document]:
    if len(sinks(document)) > 1:
        for sink in sinks(document):
            nodes = [node for node in document["nodes"] if node is not sink]
            yield pruned({**document, "nodes": nodes})


def _fewer_records(document: Document, *, at_least: int) -> Iterator[Document]:
    records = document["inputs"]
    size = len(records) // 2 if at_least > 1 else 1
    while size >= at_least:
        for start in range(0, len(records), size):
            kept = records[:start] + records[start + size :]
            if kept:
                yield {**document, "inputs": kept}
        size //= 2


def _fewer_operators(document: Document) -> Iterator[Document]:
    kind = kinds(document)
    for node in reversed(document["nodes"]):
        if node["op"] == "to":
            continue
        for above in upstream(node):
            if _can_stand_in(document, node, kind[above], kind[node["id"]]):
                yield pruned(replaced(document, node["id"], above))
        if node["op"] not in (STREAM, TABLE, GLOBAL) and kind[node["id"]] in (STREAM, TABLE):
            yield from _read_from_a_topic(document, node["id"], kind[node["id"]])
    for sink in sinks(document):
        for node in document["nodes"]:
            if node["id"] == sink["in"]:
                for above in upstream(node):
                    if kind[above] != GLOBAL:
                        moved = {**sink, "in": above}
                        nodes = [moved if plan_node is sink else plan_node for plan_node in document["nodes"]]
                        yield pruned({**document, "nodes": nodes})


def _can_stand_in(document: Document, node: Node, above: str, own: str) -> bool:
    """May what reads `node` read what is above it, of the kind `above`? An output takes a table as well as a stream."""
    if node["op"] == "toStream":
        return all(reader["op"] == "to" for reader in document["nodes"] if node["id"] in upstream(reader))
    return above == own


def _read_from_a_topic(document: Document, name: str, kind: str) -> Iterator[Document]:
    """The node becomes a source of the topic of the node above it."""
    by_name = {node["id"]: node for node in document["nodes"]}
    waiting = upstream(by_name[name])
    while waiting:
        above = by_name[waiting.pop()]
        waiting += upstream(above)
        if above["op"] in (STREAM, TABLE):
            source = {"id": name, "op": kind, "topic": above["topic"]}
            nodes = [source if node["id"] == name else node for node in document["nodes"]]
            candidate = pruned({**document, "nodes": nodes})
            topics = [node["topic"] for node in candidate["nodes"] if node["op"] in (STREAM, TABLE, GLOBAL)]
            if len(topics) == len(set(topics)):
                yield candidate


def _plainer_fields(document: Document) -> Iterator[Document]:
    for index, node in enumerate(document["nodes"]):
        for plainer in (
            {field: value for field, value in node.items() if field not in ("versioned", "not")},
            {**node, "by": None} if node["op"] == "aggregate" else node,
        ):
            if plainer != node:
                nodes = [*document["nodes"][:index], plainer, *document["nodes"][index + 1 :]]
                yield {**document, "nodes": nodes}
