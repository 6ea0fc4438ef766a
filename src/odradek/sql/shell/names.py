"""What can be completed: keywords, and what the server has. Asked for in the background, so that typing never waits."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

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
_CHANGES: Final = ("CREATE", "DROP", "ALTER", "RUN")


@dataclass(slots=True)
class KnownNames:
    """Streams, tables, their columns, and functions of a server."""

    client: RestClient
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By source."""
    functions: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def refresh_soon(self, after: str = "CREATE") -> None:
        """In the background, if the statement `after` may have changed something."""
        if after.strip().upper().startswith(_CHANGES):
            threading.Thread(target=self.refresh, name="odradek-sql-names", daemon=True).start()

    def refresh(self) -> None:
        """What the server has now; nothing changes when it does not answer."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            self.columns = {
                source["name"]: tuple(field["name"] for field in source["fields"])
                for entity in self.client.execute("DESCRIBE STREAMS; DESCRIBE TABLES;")
                for source in entity.get("sourceDescriptions", ())
            }
            if not self.functions:
                listed: list[dict[str, Any]] = self.client.execute("SHOW FUNCTIONS;")
                self.functions = tuple(function["name"] for function in listed[0]["functions"])
        except (OdradekError, KeyError, IndexError):
            return  # completion is a help, and no reason to disturb
        finally:
            self._lock.release()

    def matching(self, before: str) -> Iterator[tuple[str, str, int]]:
        """(what to write, what it is, how many characters of `before` it replaces) for a text that ends at the cursor."""
        match = _WORD.search(before)
        word = match[0] if match else ""
        start, lower = len(word), word.lower() == word and word != ""
        wanted = word.strip("`").upper()
        source = _source_before(before[: len(before) - start])
        seen = set()
        for name, kind in self._candidates(source):
            if name.upper().startswith(wanted) and (word or source) and (name, kind) not in seen:
                seen.add((name, kind))
                text = name.lower() if lower and kind in ("keyword", "function") else _written(name, kind)
                yield text, kind, start

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
    """`orders.` names a source."""
    match = re.search(r"([A-Za-z_]\w*)\.\Z", text)
    return match[1].upper() if match else None


def _written(name: str, kind: str) -> str:
    """Names that are not in upper case need back quotes."""
    return name if kind in ("keyword", "function") or _PLAIN.match(name) else f"`{name}`"
