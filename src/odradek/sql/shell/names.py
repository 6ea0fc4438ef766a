"""Completions: keywords, and names of the server. They are fetched in the background, so that typing never waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from odradek.model.errors import OdradekError
from odradek.sql.rest_client import RestClient

_KEYWORD_TEXT: Final = """
ADVANCE ALTER AND ARCHIVE ARCHIVES ARRAY AS ASSERT BETWEEN BY CASE CAST CHANGES CREATE DAY DAYS DEFINE DELETE DESCRIBE DISTINCT
DROP ELSE EMIT END ESCAPE EXISTS EXPLAIN EXTENDED FALSE FINAL FROM FULL FUNCTION FUNCTIONS GRACE GROUP HAVING HEADERS HOPPING
HOUR HOURS IF IN INNER INSERT INTO IS JOIN KEY LEFT LIKE LIMIT LIST MAP MILLISECONDS MINUTE MINUTES NOT NULL ON OR OUTER
PARTITION PAUSE PERIOD PRIMARY PRINT PROPERTIES QUERIES REPLACE RESUME RETENTION RIGHT RUN SCRIPT SECOND SECONDS SELECT SESSION
SET SHOW SIZE SOURCE SPOOL STREAM STREAMS STRUCT TABLE TABLES TERMINATE THEN TOPIC TOPICS TRUE TUMBLING TYPE TYPES UNDEFINE
UNSET VALUES VARIABLES WHEN WHERE WINDOW WITH WITHIN
BIGINT BOOLEAN BYTES DATE DECIMAL DOUBLE INT STRING TIME TIMESTAMP VARCHAR
FORMAT KAFKA_TOPIC KEY_FORMAT PARTITIONS REPLICAS TIMESTAMP_FORMAT VALUE_FORMAT WRAP_SINGLE_VALUE
ROWTIME ROWPARTITION ROWOFFSET WINDOWSTART WINDOWEND
"""
KEYWORDS: Final = tuple(_KEYWORD_TEXT.split())
_WORD: Final = re.compile(r"[A-Za-z_`$][\w`$]*\Z")
_PLAIN: Final = re.compile(r"[A-Z_][A-Z0-9_$]*\Z")
_TOPIC_WORD: Final = re.compile(r"'?[\w.-]*\Z")
_CLAUSE: Final = re.compile(
    r"(?:\A|;|\s|\()(?:(?P<show>SHOW|LIST)|(?P<function>DESCRIBE\s+FUNCTION)|(?P<describe>DESCRIBE)|(?P<topic>PRINT)"
    r"|(?P<drop>(?:DROP|ALTER)\s+(?:STREAM|TABLE)(?:\s+IF\s+EXISTS)?)|(?P<kind>DROP|ALTER|CREATE(?:\s+OR\s+REPLACE)?)"
    r"|(?P<query>TERMINATE|PAUSE|RESUME)|(?P<explain>EXPLAIN)|(?P<source>FROM|JOIN|INTO))\s+\Z",
    re.I,
)
"""The end of a text after which only certain names can come."""
_SHOWN: Final = (
    "STREAMS",
    "TABLES",
    "TOPICS",
    "QUERIES",
    "FUNCTIONS",
    "ARCHIVES",
    "PROPERTIES",
    "TYPES",
    "VARIABLES",
    "ALL TOPICS",
)
_DESCRIBED: Final = ("FUNCTION", "STREAMS", "TABLES", "ARCHIVE")
_KINDS: Final = ("STREAM", "TABLE", "TYPE", "ARCHIVE", "FUNCTION")
_EXPLAINED: Final = ("SELECT", "CREATE", "ALTER", "--picture")
_CHANGES: Final = ("CREATE", "DROP", "ALTER", "RUN")


@dataclass(slots=True)
class KnownNames:
    """Streams, tables, their columns, and functions of a server."""

    client: RestClient
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns, by source."""
    functions: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh_soon(self, after: str = "CREATE") -> None:
        """Refreshes in the background, if the statement `after` may have changed something."""
        if after.strip().upper().startswith(_CHANGES):
            threading.Thread(target=self.refresh, name="odradek-sql-names", daemon=True).start()

    def refresh(self) -> None:
        """Reads the server's current names; nothing changes when it does not answer."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self.columns = {
                source["name"]: tuple(field["name"] for field in source["fields"])
                for entity in self.client.execute("DESCRIBE STREAMS; DESCRIBE TABLES;")
                for source in entity.get("sourceDescriptions", ())
            }
            queries, topics = self.client.execute("SHOW QUERIES; SHOW TOPICS;")
            self.queries = tuple(query["id"] for query in queries["queries"])
            self.topics = tuple(topic["name"] for topic in topics["topics"])
            if not self.functions:
                listed = self.client.execute("SHOW FUNCTIONS;")
                self.functions = tuple(function["name"] for function in listed[0]["functions"])
        except (OdradekError, KeyError, IndexError, ValueError):
            return  # completion is a help, and no reason to disturb
        finally:
            self._lock.release()

    def matching(self, before: str) -> Iterator[tuple[str, str, int]]:
        """Yields (text, kind, number of characters of `before` that it replaces) for a text that ends at the cursor."""
        match = _WORD.search(before)
        word = match[0] if match else ""
        source = _source_before(before[: len(before) - len(word)])
        clause = None if source else _CLAUSE.search(before[: len(before) - len(word)])
        if clause is None:
            topics = _TOPIC_WORD.search(before)
            assert topics is not None
            clause = _CLAUSE.search(before[: topics.start()])
            if clause is not None and clause.lastgroup == "topic":
                word = topics[0]
            else:
                clause = None
        wanted = word.strip("`'").upper()
        is_lower = word.lower() == word and word != ""
        if not word and clause is not None:
            is_lower = clause[0].strip().islower()
        seen = set()
        for name, kind in (
            self._candidates(source) if clause is None else self._of_clause(clause.lastgroup or "")
        ):
            if not name.upper().startswith(wanted) or not (word or source or clause) or (name, kind) in seen:
                continue
            seen.add((name, kind))
            if kind == "topic":
                yield (name if word.startswith("'") else f"'{name}'"), kind, len(word.strip("'"))
            else:
                text = name.lower() if is_lower and kind in ("keyword", "function") else _written(name, kind)
                yield text, kind, len(word)

    def _of_clause(self, clause: str) -> Iterator[tuple[str, str]]:
        """Returns the names, with their kinds, that can follow the words of `_CLAUSE`."""
        if clause == "function":
            yield from ((name, "function") for name in self.functions)
        if clause in ("describe", "drop", "source"):
            yield from ((name, "source") for name in self.columns)
        if clause in ("query", "explain"):
            yield from ((name, "query") for name in self.queries)
        if clause == "topic":
            yield from ((name, "topic") for name in self.topics)
        words = {"show": _SHOWN, "describe": _DESCRIBED, "kind": _KINDS, "explain": _EXPLAINED}.get(
            clause, ()
        )
        yield from ((name, "keyword") for name in words)

    def _candidates(self, source: str | None) -> Iterator[tuple[str, str]]:
        if source is not None and source in self.columns:
            yield from ((name, f"column of {source}") for name in self.columns[source])
            return
        yield from ((name, "source") for name in self.columns)
        for owner, names in self.columns.items():
            yield from ((name, f"column of {owner}") for name in names)
        yield from ((name, "function") for name in self.functions)
        yield from ((name, "keyword") for name in KEYWORDS)


def _source_before(text: str) -> str | None:
    """Returns the source before the cursor, such as `orders` of `orders.`."""
    match = re.search(r"([A-Za-z_]\w*)\.\Z", text)
    return match[1].upper() if match else None


def _written(name: str, kind: str) -> str:
    """Names that are not in upper case need back quotes."""
    return name if kind in ("keyword", "function", "query") or _PLAIN.match(name) else f"`{name}`"
