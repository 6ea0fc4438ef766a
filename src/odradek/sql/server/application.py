"""ksqlDB's HTTP API, as an ASGI application. What a statement does is decided elsewhere: `SqlService` is what is needed of it.

Source: ksqlDB's HTTP API reference.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from decimal import Decimal
from typing import Final, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from odradek.model.errors import OdradekError
from odradek.sql.queries.answer import AnswerWriter, QueryAnswer
from odradek.sql.server.connections import SqlConnections
from odradek.sql.server.gate import GateLimits, HttpUsers, SqlGate
from odradek.sql.server.refusals import BAD_REQUEST, NOT_FOUND, SERVER_ERROR, RestRefusal, refusal_of
from odradek.sql.server.row_formats import DELIMITED, KSQL_V1, chosen, json_text
from odradek.telemetry import events

_log = events.caused_by_peers("sql")
_SEND_TURNS: Final = 4
"""The turns of the event loop that hypercorn needs to send a row in a frame of its own."""
_LINE_BYTES_MAX: Final = 4 << 20


class SqlService(Protocol):
    """The server that answers the requests. Every method may raise an OdradekError, which the client receives."""

    async def execute(
        self,
        text: str,
        properties: Mapping[str, str],
        variables: Mapping[str, str],
        after_sequence: int | None,
    ) -> list[dict[str, object]]: ...

    async def query(
        self, text: str, properties: Mapping[str, str], variables: Mapping[str, str]
    ) -> QueryAnswer: ...

    async def insert(self, target: str, row: Mapping[str, object]) -> None: ...

    def close_query(self, query_id: str) -> bool: ...

    def status(self, command_id: str) -> dict[str, object] | None: ...

    def statuses(self) -> dict[str, str]: ...

    def info(self) -> dict[str, object]: ...

    async def health(self) -> dict[str, object]: ...

    def cluster(self) -> dict[str, object]: ...

    def heard(self, message: Mapping[str, object]) -> None: ...

    def reported(self, message: Mapping[str, object]) -> None: ...

    async def terminate(self, topics: object) -> list[dict[str, object]]: ...

    def check_property(self, name: str) -> None: ...


def application(
    service: SqlService,
    users: HttpUsers | None = None,
    limits: GateLimits | None = None,
    connections: SqlConnections | None = None,
) -> ASGIApp:
    """Returns the server's ASGI application. `users`: who may enter, by HTTP Basic; None: everyone. `connections`: those
    that requests come from."""
    doors = _Doors(service)
    app = Starlette(
        routes=[
            Route("/ksql", doors.statements, methods=["POST"]),
            Route("/ksql/terminate", doors.terminate, methods=["POST"]),
            Route("/query", doors.query, methods=["POST"]),
            Route("/query-stream", doors.query, methods=["POST"]),
            Route("/inserts-stream", doors.inserts, methods=["POST"]),
            Route("/close-query", doors.close_query, methods=["POST"]),
            Route("/status", doors.statuses, methods=["GET"]),
            Route("/status/{command_id:path}", doors.status, methods=["GET"]),
            Route("/info", doors.info, methods=["GET"]),
            Route("/v1/metadata", doors.info, methods=["GET"]),
            Route("/v1/metadata/id", doors.server_id, methods=["GET"]),
            Route("/healthcheck", doors.health, methods=["GET"]),
            Route("/clusterStatus", doors.cluster, methods=["GET"]),
            Route("/heartbeat", doors.heartbeat, methods=["POST"]),
            Route("/lag", doors.lag, methods=["POST"]),
            Route("/is_valid_property/{name:path}", doors.is_valid_property, methods=["GET"]),
            Route("/", doors.root, methods=["GET"]),
            WebSocketRoute("/ws/query", doors.web_socket),
        ],
        exception_handlers={Exception: _unexpected, OdradekError: _refused, HTTPException: _no_such_path},  # type: ignore[dict-item]
    )
    return SqlGate(app, users, limits or GateLimits(), connections)


class _Doors:
    """The handlers."""

    def __init__(self, service: SqlService) -> None:
        self._service = service

    async def statements(self, request: Request) -> Response:
        body = await _json_body(request)
        entities = await self._service.execute(
            _text(body, "ksql"),
            _settings(body),
            _map(body, "sessionVariables"),
            _whole_number(body, "commandSequenceNumber"),
        )
        return _answer(entities)

    async def query(self, request: Request) -> Response:
        wanted = await _json_body(request)
        text = _text(wanted, "sql" if "sql" in wanted else "ksql")
        rows_out, kind = chosen(request.headers.get("accept", ""), path=request.url.path)
        query_answer = await self._service.query(text, _settings(wanted), _map(wanted, "sessionVariables"))
        is_row_by_row = (
            kind == DELIMITED and query_answer.query_id is not None and request.scope["http_version"] == "2"
        )
        body = _written(query_answer, rows_out, is_row_by_row=is_row_by_row)
        if query_answer.is_short:
            return Response("".join([part async for part in body]), media_type=kind)
        return StreamingResponse(body, media_type=kind)

    async def inserts(self, request: Request) -> Response:
        """Writes rows to a stream: the first line names it; each other line is a row. Answers for each row, in order."""
        lines = _lines(request.stream())
        try:
            head = json.loads(await anext(lines))
        except StopAsyncIteration:
            raise RestRefusal(
                BAD_REQUEST, "the first line must be an object with the member target"
            ) from None
        except ValueError as error:
            raise RestRefusal(BAD_REQUEST, f"the first line is no JSON: {error}") from error
        target = _text(head, "target")
        as_array = "application/json" in request.headers.get("accept", "")
        kind = "application/json" if as_array else "application/vnd.ksqlapi.delimited.v1"
        return _WhileReading(self._acknowledged(target, lines, as_array), kind)

    async def _acknowledged(
        self, target: str, lines: AsyncIterator[bytes], as_array: bool
    ) -> AsyncIterator[str]:
        sequence = 0
        problem: RestRefusal | None = None
        try:
            async for line in lines:
                before = ("[" if sequence == 0 else ",") if as_array else ""
                await self._service.insert(target, _row(line, sequence))
                yield before + json_text({"status": "ok", "seq": sequence}) + ("" if as_array else "\n")
                sequence += 1
        except Exception as error:  # noqa: BLE001 - the root of a response: it ends with what is wrong
            if not isinstance(error, OdradekError):
                _log.error("sql_insert_failed", target=target, reason=_in_a_line(error))
            problem = refusal_of(error)
        if problem is not None:
            document = {
                "status": "error",
                "seq": sequence,
                "error_code": problem.code,
                "message": problem.message,
            }
            before = ("[" if sequence == 0 else ",") if as_array else ""
            yield before + json_text(document) + ("]" if as_array else "\n")
        elif as_array:
            yield "]" if sequence else "[]"

    async def close_query(self, request: Request) -> Response:
        query_id = _text(await _json_body(request), "queryId")
        if not self._service.close_query(query_id):
            raise RestRefusal(BAD_REQUEST, f"No query with id {query_id}")
        return Response(status_code=200)

    async def status(self, request: Request) -> Response:
        command_id = request.path_params["command_id"]
        status = self._service.status(command_id)
        if status is None:
            raise RestRefusal(NOT_FOUND, f"Command not found: {command_id}")
        return _answer(status)

    async def statuses(self, request: Request) -> Response:
        return _answer({"commandStatuses": self._service.statuses()})

    async def info(self, request: Request) -> Response:
        return _answer({"KsqlServerInfo": self._service.info()})

    async def server_id(self, request: Request) -> Response:
        info = self._service.info()
        scope = {"kafka-cluster": info["kafkaClusterId"], "ksql-cluster": info["ksqlServiceId"]}
        return _answer({"scope": {"path": [], "clusters": scope}, "id": ""})

    async def health(self, request: Request) -> Response:
        health = await self._service.health()
        return _answer(health, 200 if health["isHealthy"] else 503)

    async def cluster(self, request: Request) -> Response:
        return _answer({"clusterStatus": self._service.cluster()})

    async def heartbeat(self, request: Request) -> Response:
        self._service.heard(await _json_body(request))
        return _answer({"isOk": True})

    async def lag(self, request: Request) -> Response:
        self._service.reported(await _json_body(request))
        return _answer({"isOk": True})

    async def terminate(self, request: Request) -> Response:
        """Ends the service: all its queries and sources."""
        body = await _json_body(request) if await request.body() else {}
        return _answer(await self._service.terminate(body.get("deleteTopicList", [])))

    async def is_valid_property(self, request: Request) -> Response:
        self._service.check_property(request.path_params["name"])
        return _answer(True)

    async def root(self, request: Request) -> Response:
        return Response(status_code=307, headers={"Location": "/info"})

    async def web_socket(self, socket: WebSocket) -> None:
        """Runs the query in `?request={"ksql": …}`: sends the columns, then a message for each row."""
        await socket.accept()
        try:
            body = json.loads(socket.query_params.get("request", ""))
            query_answer = await self._service.query(
                _text(body, "ksql"), _settings(body), _map(body, "sessionVariables")
            )
        except (ValueError, OdradekError) as error:
            refusal = refusal_of(error) if isinstance(error, OdradekError) else None
            await socket.close(1003, (refusal.message if refusal else f"request= is no JSON: {error}")[:120])
            return
        try:
            columns = [
                {"name": column.name, "schema": {"type": column.type}} for column in query_answer.columns
            ]
            await socket.send_text(json_text(columns))
            async for rows in query_answer.rows:
                for row in rows:
                    await socket.send_text(json_text({"row": {"columns": row}}))
            await socket.close(1000, query_answer.final_message)
        except WebSocketDisconnect:
            pass
        except Exception as error:  # noqa: BLE001 - the root of a response, as above
            if not isinstance(error, OdradekError):
                _log.error("sql_answer_failed", query=query_answer.query_id, reason=_in_a_line(error))
            await socket.close(1011, refusal_of(error).message[:120])
        finally:
            await query_answer.close()


class _WhileReading(Response):
    """A body that is written while the request is still being read: starlette's own would read the request away."""

    def __init__(self, parts: AsyncIterator[str], media_type: str) -> None:
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for part in self._parts:
            await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _written(
    query_answer: QueryAnswer, out: AnswerWriter, *, is_row_by_row: bool = False
) -> AsyncIterator[str]:
    """Yields the body of a response. The client's going away ends the query.

    `is_row_by_row`: each row is a frame of HTTP/2 of its own, as with ksqlDB: npm's ksqldb-client parses frame by frame.
    """
    try:
        yield out.begin(query_answer)
        try:
            async for rows in query_answer.rows:
                if is_row_by_row:
                    for row in rows:
                        yield out.rows([row])
                        for _ in range(_SEND_TURNS):
                            await asyncio.sleep(0)
                    continue
                text = out.rows(rows) if rows else out.idle()
                if text:
                    yield text
        except Exception as error:  # noqa: BLE001 - the root of a response: it ends with what is wrong
            if not isinstance(error, OdradekError):
                _log.error("sql_answer_failed", query=query_answer.query_id, reason=_in_a_line(error))
            refusal = refusal_of(error)
            yield out.problem(refusal.code, refusal.message)
            return
        yield out.end(query_answer)
    finally:
        await asyncio.shield(query_answer.close())


def _row(line: bytes, sequence: int) -> dict[str, object]:
    """Parses a row of /inserts-stream."""
    try:
        row = json.loads(line, parse_float=Decimal)
        if not isinstance(row, dict):
            raise ValueError("a row is an object of column names and values")
    except (ValueError, RecursionError) as error:
        raise RestRefusal(BAD_REQUEST, f"row {sequence} is no JSON: {error}") from error
    return row


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines that are not empty, as they come."""
    held = bytearray()
    async with aclosing(chunks) as stream:  # type: ignore[type-var]
        async for chunk in stream:
            first, *others = chunk.split(b"\n")
            held += first  # in place: a client may send byte by byte
            for begun in others:
                if held.strip():
                    yield bytes(held)
                held = bytearray(begun)
            if len(held) > _LINE_BYTES_MAX:
                raise RestRefusal(BAD_REQUEST, f"a line is longer than {_LINE_BYTES_MAX} bytes")
    if held.strip():
        yield bytes(held)


async def _json_body(request: Request) -> dict[str, object]:
    try:
        body = json.loads(await request.body())  # the gate bounds it
    except (ValueError, RecursionError) as error:
        raise RestRefusal(BAD_REQUEST, f"the request is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise RestRefusal(BAD_REQUEST, "the request must be a JSON object")
    return body


def _text(body: Mapping[str, object], name: str) -> str:
    value = body.get(name) if isinstance(body, dict) else None
    if not isinstance(value, str):
        raise RestRefusal(BAD_REQUEST, f"the request needs the member {name}, a text")
    return value


def _whole_number(body: Mapping[str, object], name: str) -> int | None:
    value = body.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise RestRefusal(BAD_REQUEST, f"the member {name} must be a whole number")
    return value


def _map(body: Mapping[str, object], name: str) -> dict[str, str]:
    values = body.get(name) or {}
    if not isinstance(values, dict):
        raise RestRefusal(BAD_REQUEST, f"the member {name} must be an object")
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}


def _settings(body: Mapping[str, object]) -> dict[str, str]:
    return {**_map(body, "streamsProperties"), **_map(body, "properties")}


def _answer(value: object, status: int = 200) -> Response:
    return Response(json_text(value), status, media_type=KSQL_V1)


async def _refused(_: Request, error: OdradekError) -> Response:
    refusal = refusal_of(error)
    return _answer(refusal.as_json(), refusal.status)


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    refusal = RestRefusal(
        error.status_code * 100, f"{request.method} {request.url.path[:200]}: {error.detail}"
    )
    return _answer(refusal.as_json(), refusal.status)


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("sql_request_failed", path=request.url.path[:200], reason=_in_a_line(error))
    return _answer(refusal_of(error).as_json(), SERVER_ERROR // 100)


def _in_a_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
