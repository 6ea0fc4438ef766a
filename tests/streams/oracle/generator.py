"""Random programs with their inputs, small and full of edges: `generate(seed)` makes one document.

A document is plain data, and means the same to Kafka (`java/Program.java`) and to us (`ours.py`):
`{"seed", "variant", "goal", "nodes": [{"id", "op", …}, …], "inputs": [[topic, key, [tag, n] or null, timestamp in ms], …]}`.
Nodes stand after those that they read; the README lists operators and functions. Every program has one operator as its
goal, taken in turn from `GOALS`, with others before and after it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Node = dict[str, Any]
Document = dict[str, Any]

KEYS = ("a", "b", "c")
TAGS = ("a", "b", "c", "x")
UNIT_MS = 5
"""Sizes of windows and most timestamps are multiples of it, so that records meet the edges of windows."""
WINDOWED_STREAM, WINDOWED_TABLE = "windowed stream", "windowed table"
STREAM, TABLE, GLOBAL = "stream", "table", "global"
_DEPTH = 2
_SHARING = 0.4
_LATER_MS = 10_000
"""Longer than any window and any grace."""


class ProgramInTheMaking:
    """One program in the making. Methods that build return the id of the last node that they added."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes: list[Node] = []
        self.kinds: dict[str, str] = {}
        self._topics: dict[str, str] = {}
        self.sharing = 0.0
        """How often what is there already is read once more."""

    # --- nodes

    def add(self, kind: str, op: str, **fields: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append({"id": name, "op": op, **fields})
        self.kinds[name] = kind
        return name

    def known(self, kind: str) -> str | None:
        """A node of this kind that is there already, now and then: then two ways lead from it, and may meet again."""
        if not self.sharing or self.rng.random() >= self.sharing or self._says_unmatched():
            return None
        names = [name for name, of_kind in self.kinds.items() if of_kind == kind]
        return self.rng.choice(names) if names else None

    def source(self, kind: str) -> str:
        if (known := self.known(kind)) is not None:
            return known
        topic = f"{kind[0]}{len(self._topics)}"
        self._topics[topic] = kind
        versioned = kind == TABLE and self.rng.random() < 0.1
        return self.add(kind, kind, topic=topic, **({"versioned": self.ms(1, 6)} if versioned else {}))

    def sink(self, node: str) -> None:
        self.add("sink", "to", topic=f"o{len(self.nodes)}", **{"in": node})

    # --- functions

    def ms(self, least: int, most: int) -> int:
        """A duration, now and then one beside the grid."""
        return self.rng.randint(least, most) * UNIT_MS + self.rng.choice((0, 0, 0, 0, 1))

    def where(self) -> Node:
        return self.rng.choice(
            (
                {"f": "n>", "c": self.rng.randint(-1, 3)},
                {"f": "n%", "m": 2, "r": self.rng.randint(0, 1)},
                {"f": "tag=", "c": self.rng.choice(TAGS)},
                {"f": "key=", "c": self.rng.choice(KEYS)},
                {"f": "null"},
                {"f": "some"},
            )
        )

    def change(self) -> Node:
        return self.rng.choice(
            (
                {"f": "add", "c": self.rng.randint(-2, 3)},
                {"f": "tag", "c": self.rng.choice("pq")},
                {"f": "drop", "m": self.rng.randint(2, 3), "r": self.rng.randint(0, 1)},
                {"f": "default", "tag": "d", "n": 7},
            )
        )

    def by(self) -> Node:
        return self.rng.choice(
            (
                {"f": "tag"},
                {"f": "tag unless", "c": self.rng.choice(TAGS)},
                {"f": "n%", "m": self.rng.randint(2, 3)},
                {"f": "suffix", "c": "!"},
                {"f": "const", "c": "k"},
                {"f": "key"},
            )
        )

    def foreign_key(self) -> Node:
        return self.rng.choice(({"f": "tag"}, {"f": "tag"}, {"f": "tag unless", "c": self.rng.choice(TAGS)}))

    def expand(self, *, keeps_key: bool) -> Node:
        repeat = {"f": "repeat", "m": self.rng.randint(2, 4)}
        return repeat if keeps_key or self.rng.random() < 0.5 else {"f": "keys"}

    def agg(self) -> Node:
        kind = self.rng.choice(("count", "reduce", "aggregate"))
        if kind == "count":
            return {"kind": kind}
        if kind == "reduce":
            n = self.rng.choice(("sum", "min", "max", "first", "last"))
            return {"kind": kind, "n": n, "tag": self.rng.choice(("min", "max", "first", "last", "concat"))}
        return self.initial_agg()

    def initial_agg(self) -> Node:
        """An aggregate that begins with the empty text and 0."""
        tag = self.rng.choice(("none", "last", "concat"))
        return {"kind": "aggregate", "n": self.rng.choice(("sum", "count")), "tag": tag}

    def window(self, kind: str) -> Node:
        grace = self.rng.choice((0, 0, UNIT_MS, 2 * UNIT_MS, 1, 1000))
        match kind:
            case "tumbling":
                return {"kind": kind, "size": self.ms(1, 4), "grace": grace}
            case "hopping":
                size = self.rng.randint(2, 4) * UNIT_MS
                return {
                    "kind": kind,
                    "size": size,
                    "advance": self.rng.choice((UNIT_MS, 7, size - 1)),
                    "grace": grace,
                }
            case "sliding":
                return {"kind": kind, "difference": self.ms(1, 3), "grace": grace}
        return {"kind": "session", "gap": self.ms(1, 3), "grace": grace}

    # --- streams and tables, as deep as `depth` operators

    def stream(self, depth: int = _DEPTH) -> str:
        if (known := self.known(STREAM)) is not None:
            return known
        if depth == 0 or self.rng.random() < 0.5:
            return self.source(STREAM)
        if self.rng.random() < 0.2:
            return self.add(STREAM, "toStream", **{"in": self.table(depth - 1)})
        return self.stateless(self.rng.choice(_STATELESS), self.stream(depth - 1))

    def table(self, depth: int = _DEPTH) -> str:
        if (known := self.known(TABLE)) is not None:
            return known
        if depth == 0 or self.rng.random() < 0.5:
            return self.source(TABLE)
        form = self.rng.randint(0, 5)
        if form < 2:
            return self.table_change(
                self.rng.choice(("filter", "filterNot", "mapValues")), self.table(depth - 1)
            )
        if form == 2:
            return self.add(TABLE, "toTable", **{"in": self.stream(depth - 1)})
        if form == 3:
            return self.regroup(depth - 1)
        return self.aggregate(None, depth - 1)

    def stateless(self, op: str, upstream: str) -> str:
        kind = self.kinds[upstream]
        match op:
            case "filter" | "filterNot":
                inverted = {"not": True} if op == "filterNot" else {}
                return self.add(kind, "filter", **{"in": upstream}, where=self.where(), **inverted)
            case "mapValues":
                return self.add(kind, op, **{"in": upstream}, change=self.change())
            case "selectKey":
                return self.add(kind, op, **{"in": upstream}, by=self.by())
            case "map":
                return self.add(kind, op, **{"in": upstream}, by=self.by(), change=self.change())
            case "flatMap" | "flatMapValues":
                return self.add(kind, op, **{"in": upstream}, expand=self.expand(keeps_key=op != "flatMap"))
            case "merge":
                return self.merge(upstream, self.stream(0))
            case "branch":
                wheres = [self.where() for _ in range(self.rng.randint(1, 2))]
                return self.add(
                    kind, op, **{"in": upstream}, where=wheres, take=self.rng.randint(0, len(wheres))
                )
        return self.add(kind, "repartition", **{"in": upstream})

    def merge(self, left: str, right: str) -> str:
        """Kafka has the records of a stream that is merged with itself once, ours twice: there is none here."""
        right = (
            self.add(STREAM, "mapValues", **{"in": right}, change=self.change()) if left == right else right
        )
        return self.add(STREAM, "merge", **{"in": left}, right=right)

    def table_change(self, op: str, upstream: str) -> str:
        kind = self.kinds[upstream]
        if op == "mapValues":
            return self.add(kind, op, **{"in": upstream}, change=self.change())
        inverted = {"not": True} if op == "filterNot" else {}
        return self.add(kind, "filter", **{"in": upstream}, where=self.where(), **inverted)

    # --- aggregates

    def aggregate(self, window: str | None, depth: int = _DEPTH) -> str:
        upstream = self.stream(depth)
        by = self.by() if self.rng.random() < 0.4 else None
        kind = TABLE if window is None else WINDOWED_TABLE
        shape = None if window is None else self.window(window)
        return self.add(kind, "aggregate", **{"in": upstream}, by=by, window=shape, agg=self.agg())

    def final(self, depth: int = _DEPTH) -> str:
        """The results of closed windows only."""
        windowed = self.aggregate(self.rng.choice(_WINDOWS), depth)
        return self.add(WINDOWED_TABLE, "suppress", **{"in": windowed})

    def cogroup(self, window: str | None) -> str:
        upstream = [self.stream(1) for _ in range(self.rng.randint(2, 3))]
        aggs = [self.initial_agg() for _ in upstream]
        if window == "session":  # the merger of sessions adds up, so every rule must
            aggs = [{"kind": "aggregate", "n": agg["n"], "tag": "concat"} for agg in aggs]
        shape = None if window is None else {**self.window(window), "grace": _LATER_MS}
        kind = TABLE if window is None else WINDOWED_TABLE
        return self.add(kind, "cogroup", **{"in": upstream}, aggs=aggs, window=shape)

    def regroup(self, depth: int = _DEPTH) -> str:
        agg = self.rng.choice(({"kind": "count"}, {"kind": "aggregate", "n": "sum", "tag": "none"}))
        return self.add(TABLE, "regroup", **{"in": self.table(depth)}, by=self.by(), agg=agg)

    # --- joins

    def join_streams(self, how: str) -> str:
        left, right = self.stream(), self.stream(1)
        span = self.ms(0, 3)
        other = span if self.rng.random() < 0.6 else self.ms(0, 3)
        grace = self.rng.choice((0, UNIT_MS, 2 * UNIT_MS, 1000))
        return self.add(
            STREAM, "joinStreams", left=left, right=right, how=how, before=span, after=other, grace=grace
        )

    def join_table(self, how: str) -> str:
        left, right = self.stream(), self.table()
        history = self.history(right)
        more = {} if history is None else {"grace": self.rng.choice((0, 1, UNIT_MS, history))}
        if self.rng.random() < 0.4 or more.get("grace", 0) > (history or 0):
            more = {}
        left = self.keyed(left, how, more)
        return self.add(STREAM, "joinTable", left=left, right=right, how=how, **more)

    def keyed(self, left: str, how: str, more: dict[str, int]) -> str:
        """Kafka's left join with grace fails at a record without key: there is none here."""
        if how == "left" and "grace" in more:
            return self.add(STREAM, "filter", **{"in": left}, where={"f": "keyed"})
        return left

    def history(self, table: str) -> int | None:
        """The versions of a table that it has itself, or what it is made of."""
        node = next(node for node in self.nodes if node["id"] == table)
        if node["op"] in ("filter", "mapValues"):
            return self.history(node["in"])
        versioned: int | None = node.get("versioned")
        return versioned

    def versioned(self) -> str:
        """A versioned table, or what a filter or a change makes of it."""
        topic = f"v{len(self._topics)}"
        self._topics[topic] = TABLE
        table = self.add(TABLE, TABLE, topic=topic, versioned=self.ms(1, 6))
        if self.rng.random() < 0.4:
            return self.table_change(self.rng.choice(("filter", "filterNot", "mapValues")), table)
        return table

    def join_versioned(self, how: str) -> str:
        left, right = self.stream(1), self.versioned()
        history = self.history(right)
        assert history is not None
        grace = self.rng.choice((None, None, 0, UNIT_MS, history // 2, history))
        more = {} if grace is None else {"grace": min(grace, history)}
        left = self.keyed(left, how, more)
        return self.add(STREAM, "joinTable", left=left, right=right, how=how, **more)

    def after_versions(self) -> str:
        """What else reads a versioned table."""
        match self.rng.randint(0, 3):
            case 0:
                left, right = self.versioned(), self.table(1)
                if self.rng.random() < 0.5:
                    left, right = right, left
                return self.add(TABLE, "joinTables", left=left, right=right, how=self.rng.choice(_HOWS))
            case 1:
                agg = self.rng.choice(({"kind": "count"}, {"kind": "aggregate", "n": "sum", "tag": "none"}))
                return self.add(TABLE, "regroup", **{"in": self.versioned()}, by=self.by(), agg=agg)
            case 2:
                left, right, how = self.versioned(), self.table(1), self.rng.choice(_HOWS[:2])
                return self.add(TABLE, "joinForeign", left=left, right=right, how=how, by=self.foreign_key())
        return self.versioned()

    def join_global(self, how: str) -> str:
        left, right = self.stream(), self.source(GLOBAL)
        return self.add(STREAM, "joinGlobal", left=left, right=right, how=how, by=self.by())

    def join_tables(self, how: str) -> str:
        return self.add(TABLE, "joinTables", left=self.table(), right=self.table(), how=how)

    def join_foreign(self, how: str) -> str:
        left, right = self.table(), self.table()
        return self.add(TABLE, "joinForeign", left=left, right=right, how=how, by=self.foreign_key())

    def new_topic(self, kind: str) -> str:
        topic = f"{kind[0]}{len(self._topics)}"
        self._topics[topic] = kind
        return topic

    # --- what follows the goal

    def suffix(self, node: str) -> str:
        """One more operator, or none."""
        if self.rng.random() < 0.5:
            return node
        match self.kinds[node]:
            case "stream":
                if self.rng.random() < 0.3 and not self._says_unmatched():
                    by = self.by() if self.rng.random() < 0.5 else None
                    return self.add(TABLE, "aggregate", **{"in": node}, by=by, window=None, agg=self.agg())
                return self.stateless(self.rng.choice(_STATELESS), node)
            case "table":
                return self._after_table(node)
            case "windowed table":
                if self.rng.random() < 0.6:
                    return self.table_change(self.rng.choice(("filter", "filterNot", "mapValues")), node)
                return self.add(
                    STREAM, "unwindow", **{"in": self.add(WINDOWED_STREAM, "toStream", **{"in": node})}
                )
        return node

    def _after_table(self, node: str) -> str:
        match self.rng.randint(0, 3):
            case 0:
                return self.table_change(self.rng.choice(("filter", "filterNot", "mapValues")), node)
            case 1:
                return self.stateless("mapValues", self.add(STREAM, "toStream", **{"in": node}))
            case 2:
                return self.add(
                    TABLE, "joinTables", left=node, right=self.source(TABLE), how=self.rng.choice(_HOWS)
                )
        agg = {"kind": "aggregate", "n": "sum", "tag": "none"}
        return self.add(TABLE, "regroup", **{"in": node}, by=self.by(), agg=agg)

    def _says_unmatched(self) -> bool:
        """Does a join of streams say records alone? Kafka leaves open when: nothing that depends on it follows."""
        return any(node["op"] == "joinStreams" and node["how"] != "inner" for node in self.nodes)

    # --- inputs

    def inputs(self) -> list[list[Any]]:
        """Records of all sources in the order in which they arrive; half of the programs keep time in order."""
        steps = self.rng.choice(_WALKS)
        now = self.rng.choice((0, 0, 20, 1000))
        least = 3 + 2 * len(self._topics)
        records = []
        for _ in range(self.rng.randint(least, least + 12)):
            topic = self.rng.choice(list(self._topics))
            now = max(0, now + self.rng.choice(steps))
            key = None if self.rng.random() < 0.07 else self.rng.choice(KEYS)
            nulls = 0.12 if self._topics[topic] == STREAM else 0.22
            value = None if self.rng.random() < nulls else [self.rng.choice(TAGS), self.rng.randint(-2, 4)]
            records.append([topic, key, value, now])
        if self._says_unmatched():  # what waits for time is said in the end
            for later in (_LATER_MS, 2 * _LATER_MS):
                records += [[topic, "a", ["x", 1], now + later] for topic in self._topics]
        return records


class MeetingWays:
    """Programs in which two ways lead from one stream or table to one operator."""

    def __init__(self, made: ProgramInTheMaking) -> None:
        self.made = made

    def way_of_stream(self, stream: str) -> str:
        """The stream itself, or what one or two operators make of it."""
        for _ in range(self.made.rng.choice((0, 1, 1, 2))):
            stream = self.made.stateless(self.made.rng.choice(_ONWARD), stream)
        return stream

    def table_of(self, stream: str) -> str:
        """A table that is computed from the stream."""
        upstream = self.way_of_stream(stream) if self.made.rng.random() < 0.3 else stream
        if self.made.rng.random() < 0.4:
            table = self.made.add(TABLE, "toTable", **{"in": upstream})
        else:
            by = self.made.by() if self.made.rng.random() < 0.3 else None
            table = self.made.add(
                TABLE, "aggregate", **{"in": upstream}, by=by, window=None, agg=self.made.agg()
            )
        return self.way_of_table(table)

    def way_of_table(self, table: str) -> str:
        """The table itself, or what is made of it."""
        match self.made.rng.randint(0, 7):
            case 0 | 1:
                return self.made.table_change(
                    self.made.rng.choice(("filter", "filterNot", "mapValues")), table
                )
            case 2:
                agg = self.made.rng.choice(
                    ({"kind": "count"}, {"kind": "aggregate", "n": "sum", "tag": "none"})
                )
                return self.made.add(TABLE, "regroup", **{"in": table}, by=self.made.by(), agg=agg)
            case 3:
                other = self.made.add(TABLE, TABLE, topic=self.made.new_topic(TABLE))
                sides = [table, other]
                self.made.rng.shuffle(sides)
                return self.made.add(
                    TABLE, "joinTables", left=sides[0], right=sides[1], how=self.made.rng.choice(_HOWS)
                )
        return table

    def join_own_table(self, how: str) -> str:
        """A stream, and a table that is computed from the same one; which of them is built first is open."""
        stream = self.made.stream(1)
        left = None if self.made.rng.random() < 0.5 else self.way_of_stream(stream)
        right = self.table_of(stream)
        left = self.way_of_stream(stream) if left is None else left
        return self.made.add(STREAM, "joinTable", left=left, right=right, how=how)

    def join_stream_of_table(self, how: str) -> str:
        """The updates of a table, and what is made of the same table."""
        table = (
            self.made.source(TABLE) if self.made.rng.random() < 0.4 else self.table_of(self.made.stream(0))
        )
        ways = [lambda: self.made.add(STREAM, "toStream", **{"in": table}), lambda: self.way_of_table(table)]
        if self.made.rng.random() < 0.5:
            left, right = ways[0](), ways[1]()
        else:
            right, left = ways[1](), ways[0]()
        return self.made.add(STREAM, "joinTable", left=left, right=right, how=how)

    def join_shared_table(self, how: str) -> str:
        """Two joins with one table, of which one may read what the other says."""
        stream = self.made.stream(1)
        table = self.table_of(stream) if self.made.rng.random() < 0.7 else self.made.table(1)
        first = self.made.add(STREAM, "joinTable", left=self.way_of_stream(stream), right=table, how="left")
        self.made.sink(first)
        left = first if self.made.rng.random() < 0.5 else self.way_of_stream(stream)
        return self.made.add(STREAM, "joinTable", left=left, right=self.way_of_table(table), how=how)

    def join_own_tables(self, how: str) -> str:
        """Two tables that are computed from one stream."""
        stream = self.made.stream(1)
        left, right = self.table_of(stream), self.table_of(stream)
        if self.made.rng.random() < 0.5:
            left, right = right, left
        return self.made.add(TABLE, "joinTables", left=left, right=right, how=how)

    def join_own_stream(self) -> str:
        stream = self.made.stream(1)
        left, right = self.way_of_stream(stream), self.way_of_stream(stream)
        fields = {"before": self.made.ms(0, 3), "after": self.made.ms(0, 3), "grace": 1000}
        return self.made.add(STREAM, "joinStreams", left=left, right=right, how="inner", **fields)

    def diamond(self) -> str:
        """Two ways from one stream to a merge, and what depends on the order in which records come there."""
        stream = self.made.stream(1)
        merged = self.made.merge(self.way_of_stream(stream), self.way_of_stream(stream))
        agg = {"kind": "reduce", "n": "last", "tag": "concat"}
        return self.made.add(TABLE, "aggregate", **{"in": merged}, by=None, window=None, agg=agg)


_STATELESS = (
    "filter", "filterNot", "mapValues", "selectKey", "map", "flatMap", "flatMapValues", "merge", "branch", "repartition",
)  # fmt: skip
_ONWARD = ("filter", "mapValues", "mapValues", "flatMapValues", "branch", "selectKey", "map", "repartition")
_WINDOWS = ("tumbling", "hopping", "sliding", "session")
_HOWS = ("inner", "left", "outer")
_WALKS = (
    (0, 1, 4, 5, 5, 6, 10, 11),
    (0, 0, 5, 5, 10),
    (-5, 0, 0, 1, 4, 5, 5, 6, 10),
    (-10, -5, -1, 0, 5, 5, 10, 15),
    (-40, -15, -5, -1, 0, 1, 5, 5, 6, 10, 11, 30),
)


def _stateless_goal(op: str) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: made.stateless(op, made.stream())


def _table_goal(op: str) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: made.table_change(op, made.table())


def _window_goal(window: str | None) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: made.aggregate(window)


def _cogroup_goal(window: str | None) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: made.cogroup(window)


def _join_goal(method: str, how: str) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: getattr(made, method)(how)


def _meeting_goal(method: str, how: str) -> Callable[[ProgramInTheMaking], str]:
    return lambda made: getattr(MeetingWays(made), method)(how)


MEETING_GOALS: dict[str, Callable[[ProgramInTheMaking], str]] = {
    **{f"{how} join with its own table": _meeting_goal("join_own_table", how) for how in _HOWS[:2]},
    **{
        f"{how} join with the table that it is of": _meeting_goal("join_stream_of_table", how)
        for how in _HOWS[:2]
    },
    **{f"{how} join with a shared table": _meeting_goal("join_shared_table", how) for how in _HOWS[:2]},
    **{f"{how} join of tables of one stream": _meeting_goal("join_own_tables", how) for how in _HOWS},
    "join of a stream with itself": lambda made: MeetingWays(made).join_own_stream(),
    "diamond": lambda made: MeetingWays(made).diamond(),
}
"""Those in which two ways lead from one source to one operator."""
GOALS: dict[str, Callable[[ProgramInTheMaking], str]] = {
    **{f"stream {op}": _stateless_goal(op) for op in _STATELESS},
    **{f"table {op}": _table_goal(op) for op in ("filter", "filterNot", "mapValues")},
    "toTable": lambda made: made.add(TABLE, "toTable", **{"in": made.stream()}),
    "regroup": lambda made: made.regroup(),
    "aggregate": _window_goal(None),
    **{f"{window} window": _window_goal(window) for window in _WINDOWS},
    "final": lambda made: made.final(),
    "final again": lambda made: made.final(),
    "cogroup": _cogroup_goal(None),
    **{f"{window} cogroup": _cogroup_goal(window) for window in _WINDOWS},
    **{f"{how} join of streams": _join_goal("join_streams", how) for how in _HOWS},
    **{f"{how} join of tables": _join_goal("join_tables", how) for how in _HOWS},
    **{f"{how} join with a table": _join_goal("join_table", how) for how in _HOWS[:2]},
    **{f"{how} join with a versioned table": _join_goal("join_versioned", how) for how in _HOWS[:2]},
    "versioned table": lambda made: made.after_versions(),
    **{f"{how} join with a global table": _join_goal("join_global", how) for how in _HOWS[:2]},
    **{f"{how} join by a foreign key": _join_goal("join_foreign", how) for how in _HOWS[:2]},
    **MEETING_GOALS,
}


def generate(seed: int, variant: int = 0) -> Document:
    """The same document for the same arguments; seeds that follow each other go through all goals.

    Variants of a seed are the same program with other inputs.
    """
    made = ProgramInTheMaking(random.Random(seed))
    goal = list(GOALS)[seed % len(GOALS)]
    round_ = seed // len(GOALS)
    made.sharing = _SHARING if round_ % 2 else 0.0
    emit = {"emit": "latest"} if round_ % 4 > 1 else {}
    node = GOALS[goal](made)
    if made.rng.random() < 0.3:
        made.sink(node)
        node = made.suffix(node)
        if made.nodes[-1]["op"] != "to":
            made.sink(node)
    else:
        made.sink(made.suffix(node))
    made.rng.seed(f"{seed}/{variant}")
    return {
        "seed": seed,
        "variant": variant,
        "goal": goal,
        **emit,
        "nodes": made.nodes,
        "inputs": made.inputs(),
    }
