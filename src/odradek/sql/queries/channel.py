"""The messages between the server and its engine: pickled values over a socket pair. Before each are its length and the id
of its query, so that a value that cannot be unpickled is a failure of that query alone.

Both ends are processes of one user, and the socket has no name: no one else can write to it.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.dead_letters.processing_log import ProcessingLog
from odradek.model.exception_text import text_of
from odradek.model.ids import TopicPartition
from odradek.spark.query_figures import SessionFigures
from odradek.values.rows import SqlValue

_HEADER: Final = struct.Struct(">II")
"""The number of bytes of the query's id, and of the value."""


# ---- from the server to the engine


@dataclass(frozen=True, slots=True, kw_only=True)
class StartQuery:
    """A persistent query. `build(app)` adds its operators to a program of streams. `checkpoint`: its directory."""

    query_id: str
    name: str
    """The name of the program: its transactions and changelogs are named after it."""
    build: Callable[[Any], None]
    servers: str
    options: Mapping[str, str] = field(repr=False)
    checkpoint: str
    starting: Mapping[str, str] = field(default_factory=dict)
    """The option `startingOffsets`, by topic; a topic that is missing here is read from its first record."""
    interval_ms: int = 500
    left_out_log: ProcessingLog | None = None
    """The log for records that cannot be read."""
    tells_progress: bool = False
    """The engine reports with QueryProgressed when its first batch has ended: the query failed the last time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartArchive:
    """A query that fills an archive. `start(spark, checkpoint)` begins where the archive ends; the checkpoint is empty."""

    query_id: str
    start: Callable[[Any, str], Any]
    tells_progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPush:
    """A query whose rows go to a client. `build(app, give)` adds its operators, and ends them with `give(row)`."""

    query_id: str
    build: Callable[[Any, Callable[[list[SqlValue]], None]], None]
    servers: str
    options: Mapping[str, str] = field(repr=False)
    limit: int | None = None
    starting: Mapping[str, str] = field(default_factory=dict)
    interval_ms: int = 100
    left_out_log: ProcessingLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureQueries:
    """The engine reports with EngineFigures at intervals from now on."""

    query_id: str = ""
    interval_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopQuery:
    """Ends a query of any kind. With `answers`, QueryHasStopped follows when it writes nothing any more."""

    query_id: str
    answers: bool = False


# ---- from the engine to the server


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRunning:
    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProgressed:
    """A query that was started with `tells_progress` has ended a batch."""

    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryHasStopped:
    """The answer to StopQuery: the query writes nothing any more."""

    query_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySlept:
    """A persistent query was stopped: there was nothing to read. `read`: the next offset of each partition."""

    query_id: str
    read: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """Rows of a push query: values as JSON shows them, in the order of its columns."""

    query_id: str
    rows: list[list[SqlValue]]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryEnded:
    """A query ended by itself. `problem`: its error, in one line; None when its limit is reached."""

    query_id: str
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFigures:
    """The figures of all queries of the engine."""

    figures: SessionFigures
    query_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableMessage:
    """A message that cannot be unpickled. `query_id`: empty where it is of no query. `problem`: why, in one line."""

    query_id: str
    problem: str


def framed(message: object) -> bytes:
    query_id = getattr(message, "query_id", "").encode("utf-8", "surrogatepass")
    content = pickle.dumps(message)
    return _HEADER.pack(len(query_id), len(content)) + query_id + content


def _unpickled(query_id: bytes, content: bytes) -> object:
    try:
        return pickle.loads(content)
    except Exception as error:  # noqa: BLE001 - objects of the query define how they are unpickled
        problem = " ".join(f"{type(error).__name__}: {text_of(error)}".split())
        return UnreadableMessage(query_id=query_id.decode("utf-8", "surrogatepass"), problem=problem)


async def read_message(reader: asyncio.StreamReader) -> Any:
    """Returns the next message, or UnreadableMessage. asyncio.IncompleteReadError when the other end has closed."""
    id_bytes, content_bytes = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    return _unpickled(await reader.readexactly(id_bytes), await reader.readexactly(content_bytes))


@dataclass(slots=True)
class EngineChannel:
    """The engine's end. `send` may be called from any thread; it waits while the server does not read."""

    connection: socket.socket
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: object) -> None:
        with self._lock:
            self.connection.sendall(framed(message))

    def messages(self) -> Iterator[Any]:
        """Yields messages until the server ends; UnreadableMessage in place of a message that cannot be unpickled."""
        with self.connection.makefile("rb") as stream:
            while len(header := stream.read(_HEADER.size)) == _HEADER.size:
                id_bytes, content_bytes = _HEADER.unpack(header)
                query_id, content = stream.read(id_bytes), stream.read(content_bytes)
                if len(content) < content_bytes:
                    return
                yield _unpickled(query_id, content)
