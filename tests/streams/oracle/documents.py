"""What one can ask of a document without running it: the kinds of its nodes, who reads whom, and what is left without one."""

from __future__ import annotations

import itertools
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


def exactness_of_sinks(document: Document) -> dict[str, str]:
    """By topic, what is determined: "all", or nothing ("open") of what two repartition topics lead to. Where tables say the
    latest: the "last" values of a table, and nothing of what is made of its updates, some of which are left out.
    """
    kind, racing, latest = kinds(document), races(document), document.get("emit") == "latest"
    exactness: dict[str, str] = {}
    for node in document["nodes"]:
        above = [exactness[name] for name in upstream(node)]
        if node["op"] in (STREAM, GLOBAL):
            made = "all"
        elif node["op"] in ("joinTable", "joinGlobal"):
            made = above[0] if "open" not in above else "open"
        elif node["op"] == "to":
            made = exactness[node["topic"]] = above[0]
        elif "open" in above or (latest and _shows_passing_updates(node, document, kind)):
            made = "open"
        else:
            made = "last" if latest and kind[node["id"]] != STREAM else "all"
        exactness[node["id"]] = "open" if node["id"] in racing else made
    topics = {node["topic"] for node in sinks(document)}
    return {topic: exactness[topic] for topic in topics}


def _shows_passing_updates(node: Node, document: Document, kind: dict[str, str]) -> bool:
    """Does what is there in the end depend on updates that others follow? A group stays that a row was in for a moment; a
    delete is left out of a window that a filter has not let through before.
    """
    if node["op"] == "filter":
        return kind[node["id"]] == WINDOWED_TABLE
    return node["op"] == "toStream" or (node["op"] == "regroup" and not _says_every(node["in"], document))


def _says_every(table: str, document: Document) -> bool:
    """Is every update of the table said, though others say the latest?"""
    node = next(node for node in document["nodes"] if node["id"] == table)
    is_view = node["op"] in ("filter", "mapValues")
    return _says_every(node["in"], document) if is_view else node["op"] in (TABLE, "toTable")


def stores(document: Document) -> dict[str, set[str]]:
    """Of each table, the nodes whose stores it is looked up in."""
    of_views: dict[str, set[str]] = {}
    for node in document["nodes"]:
        is_view = node["op"] in ("filter", "mapValues", "joinTables")
        above = [of_views[name] for name in upstream(node)] if is_view else [{node["id"]}]
        of_views[node["id"]] = set().union(*above)
    return of_views


def queues(document: Document) -> dict[str, frozenset[str]]:
    """Of each node, the repartition topics that its records have gone through."""
    passed: dict[str, frozenset[str]] = {}
    new_key: dict[str, bool] = {}
    for node in document["nodes"]:
        name, op, above = node["id"], node["op"], upstream(node)
        new_key[name] = any(new_key[source] for source in above)
        ways = [passed[source] for source in above]
        if op in ("selectKey", "map", "flatMap", "unwindow"):
            new_key[name] = True
        elif op in _REPARTITIONING:
            always = op in ("repartition", "regroup") or (op == "aggregate" and node["by"] is not None)
            for number, source in enumerate(above):
                if always or new_key[source]:
                    ways[number] = ways[number] | {f"{name}/{number}"}
            new_key[name] = False
        elif op == "joinForeign":
            ways = [ways[0] | {f"{name}/there", f"{name}/back"}, ways[1] | {f"{name}/back"}]
        passed[name] = frozenset().union(*ways)
    return passed


_REPARTITIONING = ("repartition", "regroup", "aggregate", "cogroup", "toTable", "joinStreams", "joinTable")
_SEVERAL = ("flatMap", "flatMapValues", "merge", "regroup", "joinForeign", "joinTables", "cogroup")


def races(document: Document) -> set[str]:
    """The nodes that depend on which of two repartition topics is read first. Kafka Streams leaves that open: its test driver
    goes through the topics in turn, as their places in a heap happen to be.
    """
    passed = queues(document)
    sources: dict[str, set[str]] = {}
    several: dict[str, bool] = {}
    racing: set[str] = set()
    for node in document["nodes"]:
        name, above = node["id"], upstream(node)
        sources[name] = {name}.union(*(sources[source] for source in above))
        several[name] = node["op"] in _SEVERAL or any(several[source] for source in above)
        ways = [
            passed[source] | {topic for topic in passed[name] if topic.startswith(f"{name}/")}
            for source in above
        ]
        for first, second in itertools.combinations(range(len(above)), 2):
            meet = sources[above[first]] & sources[above[second]]
            both = passed[name] if ways[first] and ways[second] else frozenset()
            if meet and len(both) > 1 and (len(both) > 2 or several[above[first]] or several[above[second]]):
                racing.add(name)
        if racing.intersection(above):
            racing.add(name)
    return racing


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
