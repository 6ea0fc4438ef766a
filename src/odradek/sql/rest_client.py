"""A client of the server's REST API, for the shell and for Python programs. It works with a ksqlDB server, too."""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from odradek.model.aliases import Json
from odradek.model.errors import ConfigError, OdradekError

DEFAULT_URL: Final = "http://127.0.0.1:8088"
_CONNECT_S: Final = 5.0
LINE_BYTES_MAX: Final = 16 << 20
"""The longest row that a client reads."""
ANSWER_BYTES_MAX: Final = 64 << 20
"""The largest answer to statements that a client reads."""
_MEDIA: Final = "application/vnd.ksql.v1+json"
_DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"


class ServerRefusal(OdradekError):
    """A refusal of the server. `code`: ksqlDB's, such as 40001. `entities`: the answers of the statements before it."""

    def __init__(self, code: int, message: str, entities: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.entities: Final = entities or []


class ServerUnreachable(OdradekError):
    """The error of a request to a server that is not at its address, or went away."""


@dataclass(slots=True)
class OpenQuery:
    """A query that answers. Rows are lists of values as JSON has them. Close it when you do not read to its end."""

    query_id: str | None
    columns: tuple[tuple[str, str], ...]
    """The name and the type of each column."""
    _connection: http.client.HTTPConnection
    _response: http.client.HTTPResponse

    def __iter__(self) -> Iterator[list[Json]]:
        """Yields rows until the query ends, or `close`. Raises ServerRefusal if the query fails."""
        for line in self.lines():
            try:
                yield row_of(line)
            except ValueError as error:
                raise ServerUnreachable(f"the server sent a row that is no JSON: {error}") from error

    def lines(self, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
        """Yields rows as the server wrote them, each the JSON of a list, for `row_of`. Otherwise as `__iter__`.

        A longer line ends the query with ServerUnreachable: it would need to be held in memory.
        """
        try:
            while line := self._response.readline(line_bytes_max + 1):
                if len(line) > line_bytes_max:
                    raise ValueError(f"a row has more than {line_bytes_max} bytes")
                if line.startswith(b"{"):
                    raise _failure(line)
                if line.strip():
                    yield line
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            if self._connection.sock is None:
                return  # it was closed by us
            raise ServerUnreachable(f"the server went away while the query ran: {error}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Closes the query. Idempotent; any thread may call it."""
        sock = self._connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def row_of(line: bytes) -> list[Json]:
    """Returns the values of a line of `OpenQuery.lines`. Raises ValueError for other bytes."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("its values are nested too deep") from None
    if not isinstance(row, list):
        raise ValueError(f"expected a list of values, not {line[:100]!r}")
    return row


def _failure(line: bytes) -> ServerRefusal:
    content = json.loads(line)
    return ServerRefusal(content.get("error_code", 50000), content.get("message", str(content)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestClient:
    """A client of ksqlDB's REST API.

    `url`: of the server. `ca`: a PEM file with the certificate authority of an https server, where the system has it not.
    """

    url: str = DEFAULT_URL
    user: str | None = None
    password: str = field(default="", repr=False)
    ca: Path | None = None
    timeout_s: float = 60.0

    def info(self) -> dict[str, Any]:
        """Returns version, cluster and service id of the server."""
        server_info: dict[str, Any] = self._request("GET", "/info")["KsqlServerInfo"]
        return server_info

    def execute(
        self,
        text: str,
        *,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> list[dict[str, Any]]:
        """Statements other than SELECT and PRINT: what each answers. ServerRefusal for the first that is refused."""
        body = {
            "ksql": text,
            "streamsProperties": dict(properties or {}),
            "sessionVariables": dict(variables or {}),
        }
        entities: list[dict[str, Any]] = self._request("POST", "/ksql", body)
        return entities

    def query(
        self,
        text: str,
        *,
        properties: Mapping[str, str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> OpenQuery:
        """Runs a SELECT or PRINT; returns when its columns are known."""
        body = {
            "sql": text,
            "properties": dict(properties or {}),
            "sessionVariables": dict(variables or {}),
        }
        connection = self._connection()
        try:
            response = self._sent(connection, "POST", "/query-stream", body, _DELIMITED)
            if response.status != 200:
                raise _refusal(response.status, response.read())
            head = json.loads(response.readline())
            if connection.sock is not None:
                connection.sock.settimeout(None)  # rows may be long in coming
        except BaseException:
            connection.close()
            raise
        columns = tuple(zip(head["columnNames"], head["columnTypes"], strict=True))
        return OpenQuery(head.get("queryId"), columns, connection, response)

    def close_query(self, query_id: str) -> None:
        self._request("POST", "/close-query", {"queryId": query_id})

    def _request(self, method: str, path: str, body: object = None) -> Any:
        connection = self._connection()
        try:
            response = self._sent(connection, method, path, body, _MEDIA)
            content = response.read(ANSWER_BYTES_MAX + 1)
            if response.status != 200:
                raise _refusal(response.status, content)
            if len(content) > ANSWER_BYTES_MAX:
                raise ValueError(f"it has more than {ANSWER_BYTES_MAX} bytes")
            return json.loads(content) if content else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ServerUnreachable(f"the server at {self.url} gave no answer: {error}") from error
        finally:
            connection.close()

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object, accept: str
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "Content-Type": _MEDIA}
        if self.user is not None:
            encoded = base64.b64encode(f"{self.user}:{self.password}".encode()).decode()
            headers["Authorization"] = f"Basic {encoded}"
        content = None if body is None else json.dumps(body).encode()
        try:
            connection.connect()
            connection.sock.settimeout(self.timeout_s)
            connection.request(method, path, content, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or error
            raise ServerUnreachable(
                f"there is no SQL server at {self.url} ({reason}): start one with `odradek sql serve`, or name another"
                " with --server"
            ) from error

    def _connection(self) -> http.client.HTTPConnection:
        url = check_url(self.url)
        assert url.hostname is not None
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=None if self.ca is None else str(self.ca))
            return http.client.HTTPSConnection(
                url.hostname, url.port or 8088, timeout=_CONNECT_S, context=context
            )
        return http.client.HTTPConnection(url.hostname, url.port or 8088, timeout=_CONNECT_S)


def check_url(text: str) -> urllib.parse.SplitResult:
    """Returns the parts of a server's address. Raises ConfigError for another text."""
    try:
        url = urllib.parse.urlsplit(text)
        is_address = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number
        is_address = False
    if not is_address:
        raise ConfigError(f"the address of a server is http://HOST:PORT, not {text!r:.200}")
    return url


def _refusal(status: int, content: bytes) -> ServerRefusal:
    try:
        document = json.loads(content)
        return ServerRefusal(document["error_code"], document["message"], document.get("entities"))
    except (ValueError, KeyError, TypeError):
        return ServerRefusal(status * 100, f"HTTP {status}: {content[:200].decode(errors='replace')}")
