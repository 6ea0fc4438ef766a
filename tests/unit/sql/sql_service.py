"""A service without a broker behind the real HTTP server: what doors do can be seen without queries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from odradek.sql.queries.answer import AnswerColumn, QueryAnswer
from odradek.sql.server.application import application
from odradek.sql.server.connections import SqlConnections
from odradek.sql.server.gate import GateLimits, HttpUsers
from odradek.sql.server.refusals import BAD_REQUEST, RestRefusal, refusal_of
from odradek.sql.server.serving import HttpTerms, listening, serve_http
from odradek.values.errors import SqlError


@dataclass
class ScriptedService:
    """Knows the stream NUMBERS: one push query for ever, one pull query with two rows."""

    requests: list[tuple[str, dict[str, str], dict[str, str]]] = field(default_factory=list)
    inserted: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    messages: list[tuple[str, Any]] = field(default_factory=list)
    """What other servers and operators sent."""
    open_queries: set[str] = field(default_factory=set)
    is_short: bool = False
    """The rows of the answer to the pull query are few, and come at once."""
    description: dict[str, Any] = field(default_factory=dict)
    """The answer to EXPLAIN."""
    row_problem: Exception | None = None
    """What ends an answer after its first rows."""

    async def execute(
        self,
        text: str,
        properties: Mapping[str, str],
        variables: Mapping[str, str],
        after_sequence: int | None,
    ) -> list[dict[str, Any]]:
        self.requests.append((text, dict(properties), dict(variables)))
        if "wrong" in text:
            raise refusal_of(SqlError("no such thing", (1, 6), "Did you mean right?"), text, [])
        if "show properties" in text.lower():
            return [{"@type": "properties", "properties": [], "statementText": text, "warnings": []}]
        if text.lower().startswith("explain"):
            return [{"@type": "queryDescription", "queryDescription": self.description, "warnings": []}]
        status = {"status": "SUCCESS", "message": "Stream created"}
        return [{"@type": "currentStatus", "statementText": text, "commandStatus": status, "warnings": []}]

    async def query(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> QueryAnswer:
        self.requests.append((text, dict(properties), dict(variables)))
        if "wrong" in text:
            raise refusal_of(SqlError("no such thing", (1, 6)), text)
        is_push = "EMIT" in text
        query_id = "transient_1" if is_push else None
        if query_id is not None:
            self.open_queries.add(query_id)

        async def rows() -> AsyncIterator[list[list[Any]]]:
            yield [[1, "one"], [2, "zwei ö"]]
            if self.row_problem is not None:
                raise self.row_problem
            while is_push and query_id in self.open_queries:
                await asyncio.sleep(0.01)
                yield []

        async def close() -> None:
            self.closed.append(query_id or "pull")

        columns = (AnswerColumn(name="ID", type="BIGINT"), AnswerColumn(name="NAME", type="STRING"))
        return QueryAnswer(
            query_id=query_id, columns=columns, rows=rows(), close=close, is_short=self.is_short
        )

    async def insert(self, target: str, row: Mapping[str, Any]) -> None:
        if "BAD" in row:
            raise SqlError("there is no column BAD")
        self.inserted.append((target, dict(row)))

    def close_query(self, query_id: str) -> bool:
        present = query_id in self.open_queries
        self.open_queries.discard(query_id)
        return present

    def status(self, command_id: str) -> dict[str, Any] | None:
        known = command_id == "stream/`NUMBERS`/create"
        return {"status": "SUCCESS", "message": "Stream created"} if known else None

    def statuses(self) -> dict[str, str]:
        return {"stream/`NUMBERS`/create": "SUCCESS"}

    def info(self) -> dict[str, Any]:
        return {"version": "1.2.3", "kafkaClusterId": "c", "ksqlServiceId": "s", "serverStatus": "RUNNING"}

    async def health(self) -> dict[str, Any]:
        return {"isHealthy": True, "details": {}, "serverState": "READY"}

    def cluster(self) -> dict[str, Any]:
        return {"localhost:8088": {"hostAlive": True}}

    def heard(self, message: Mapping[str, Any]) -> None:
        self.messages.append(("heartbeat", dict(message)))

    def reported(self, message: Mapping[str, Any]) -> None:
        self.messages.append(("lag", dict(message)))

    async def terminate(self, topics: Any) -> list[dict[str, Any]]:
        self.messages.append(("terminate", topics))
        return []

    def check_property(self, name: str) -> None:
        if name != "auto.offset.reset":
            raise RestRefusal(
                BAD_REQUEST, f"One or more properties overrides set locally are prohibited: {name}"
            )


@contextmanager
def served(
    service: ScriptedService,
    users: HttpUsers | None = None,
    limits: GateLimits | None = None,
    connections: SqlConnections | None = None,
) -> Iterator[str]:
    """Its URL."""
    known = SqlConnections() if connections is None else connections
    terms = HttpTerms(port=0)
    ready: list[str] = []
    has_begun = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    def begin(address: str) -> None:
        ready.append(address)
        has_begun.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        app = application(service, users, limits, known)
        loop.run_until_complete(serve_http(app, terms, listening(terms), ended, begin, known))
        loop.close()

    thread = threading.Thread(target=run, name="sql-server-of-test")
    thread.start()
    assert has_begun.wait(30)
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(30)
        assert not thread.is_alive()
