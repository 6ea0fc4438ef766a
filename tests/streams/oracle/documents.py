"""What one can ask of a document without running it: the kinds of its nodes, who reads whom, and what is left without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.streams.oracle.generator import (
    GLOBAL,
    STREAM,
    TABLE,
    WINDOWED_STREAM,
    WINDOWED_TABLE,
    Document,
    Node,
)

_READS = ("in", "left", "right")
_SAME_KIND = ("filter", "mapValues", "suppress", "merge", "branch", "selectKey", "map", "repartition")
_SAME_KIND += ("flatMap", "flatMapValues")
_KINDS = {
    "stream": STREAM,
    "table": TABLE,
    "global": GLOBAL,
    "toTable": TABLE,
    "regroup": TABLE,
    "unwindow": STREAM,
    "joinStreams": STREAM,
    "joinTable": STREAM,
    "joinGlobal": STREAM,
    "joinTables": TABLE,
    "joinForeign": TABLE,
    "to": "sink",
}


def upstream(node: Node) -> list[str]:
    """The ids of the nodes that it reads."""
    read: list[str] = []
    for field in _READS:
        names = node.get(field, [])
        read += names if isinstance(names, list) else [names]
    return read


def kinds(document: Document) -> dict[str, str]:
    types: dict[str, str] = {}
    for node in document["nodes"]:
        op = node["op"]
        if op in _KINDS:
            kind = _KINDS[op]
        elif op in _SAME_KIND:
            kind = types[upstream(node)[0]]
        elif op == "toStream":
            kind = STREAM if types[node["in"]] == TABLE else WINDOWED_STREAM
        else:
            kind = TABLE if node["window"] is None else WINDOWED_TABLE
        types[node["id"]] = kind
    return types


def operators(document: Document) -> set[str]:
    """The names of operators that a reader of the parity table would use: "left joinTables", "session aggregate"."""
    results = set()
    kind = kinds(document)
    for node in document["nodes"]:
        op = node["op"]
        window = (node.get("window") or {}).get("kind")
        prefix = node.get("how") or window
        if op in ("filter", "mapValues"):
            prefix = kind[node["id"]]
        results.add(f"{prefix} {op}" if prefix else op)
        if "agg" in node:
            results.add(f"{op} by {node['agg']['kind']}")
        if "versioned" in node:
            results.add("versioned table")
    return results


def sinks(document: Document) -> list[Node]:
    return [node for node in document["nodes"] if node["op"] == "to"]


def pruned(document: Document) -> Document:
    """The same, without nodes that no output needs, and without records that no node reads."""
    needed: set[str] = set()
    for node in reversed(document["nodes"]):
        if node["op"] == "to" or node["id"] in needed:
            needed.add(node["id"])
            needed.update(upstream(node))
    nodes = [node for node in document["nodes"] if node["id"] in needed]
    topics = {node["topic"] for node in nodes if node["op"] in (STREAM, TABLE, GLOBAL)}
    return {
        **document,
        "nodes": nodes,
        "inputs": [record for record in document["inputs"] if record[0] in topics],
    }


def replaced(document: Document, old: str, new: str) -> Document:
    """All that read `old` read `new`."""

    def change(node: Node) -> Node:
        fields: dict[str, Any] = {}
        for field in _READS:
            if isinstance(node.get(field), list):
                fields[field] = [new if name == old else name for name in node[field]]
            elif node.get(field) == old:
                fields[field] = new
        return {**node, **fields}

    return {**document, "nodes": [change(node) for node in document["nodes"]]}


def text(document: Document) -> str:
    """For people: a line for each node, and the records in the order in which they come."""
    return "\n".join(_lines(document))


def _lines(document: Document) -> Iterator[str]:
    yield f"seed {document['seed']}/{document['variant']} ({document['goal']})"
    for node in document["nodes"]:
        fields = ", ".join(f"{name}={value}" for name, value in node.items() if name not in ("id", "op"))
        yield f"  {node['id']} = {node['op']}({fields})"
    for topic, key, value, timestamp in document["inputs"]:
        yield f"  {topic} @{timestamp}: {key} -> {value}"
