"""Views over HTTP, and from the command line: real topics, the application without a socket, and one real server."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.commands import RunningCommand

from odradek import ErrorCode
from odradek.cli import main
from odradek.testing.local import LocalBroker
from odradek.views import AsyncTableView
from odradek.views.http.application import HttpLimits, application

MakeTopic = Callable[..., str]
Send = Callable[..., None]
Get = Callable[..., Any]


async def ask(
    app: Any, target: str, *, method: str = "GET", host: str = "localhost", take: bool = True
) -> tuple[int, Any]:
    """Status and decoded body of one request; with `take` off, of a client that does not read."""
    path, _, query = target.partition("?")
    sent: list[dict[str, Any]] = []
    blocked = asyncio.Event()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if not take:
            await blocked.wait()
        sent.append(message)

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": urllib.parse.unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", host.encode())],
    }
    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    assert body.count(b"\n") == 1
    assert body.endswith(b"\n")
    return sent[0]["status"], json.loads(body)


@asynccontextmanager
async def serving(
    broker: LocalBroker, tables: dict[str, dict[str, Any]], limits: HttpLimits | None = None, **more: Any
) -> AsyncIterator[Get]:
    views = {
        name: await AsyncTableView.open(broker.address, name, timeout_s=60, **how)
        for name, how in tables.items()
    }
    app = application(views, limits or HttpLimits(), **more)
    try:
        yield lambda target, **how: ask(app, target, **how)
    finally:
        for view in views.values():
            await view.close()


async def test_rows_come_with_their_freshness(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(2)
    send(topic, {b"ann": b'{"n": 1}', b"a/b c": b"2"})
    async with serving(odradek_broker, {topic: {}}) as get:
        status, body = await get(f"/tables/{topic}/ann")
        assert (status, body["key"], body["value"]) == (200, "ann", {"n": 1})
        assert body["freshness"]["lag"] == 0
        assert [entry["partition"] for entry in body["freshness"]["partitions"]] == [0, 1]
        assert (await get(f"/tables/{topic}/a%2Fb%20c?freshness=brief"))[1]["value"] == 2
        status, body = await get("/tables")
        assert [entry["table"] for entry in body["tables"]] == [topic]


async def test_pages_of_a_range_follow_each_other(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic(3)
    send(topic, {b"%03d" % number: b"%d" % number for number in range(25)})
    async with serving(odradek_broker, {topic: {}}) as get:
        values, token, pages = [], "", 0
        while token is not None:
            more = f"&token={token}" if token else ""
            _, body = await get(f"/tables/{topic}?from=002&to=020&limit=7&freshness=brief{more}")
            values += [row["value"] for row in body["rows"]]
            token, pages = body["next"], pages + 1
        assert (values, pages) == (list(range(2, 20)), 3)
        assert [row["key"] for row in (await get(f"/tables/{topic}?prefix=01"))[1]["rows"]] == [
            f"01{digit}" for digit in range(10)
        ]


async def test_windows_of_a_key(odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send) -> None:
    topic = make_topic()
    send(topic, {b"ann" + struct.pack(">q", at): b"%d" % at for at in (0, 60_000, 120_000)})
    async with serving(odradek_broker, {topic: {"windows": "1m"}}) as get:
        _, body = await get(f"/tables/{topic}/ann?from=60000&to=1970-01-01T00:02:00Z")
        assert [(row["window"], row["value"]) for row in body["rows"]] == [
            ({"start_ms": 60_000, "end_ms": 120_000}, 60_000)
        ]
        assert len((await get(f"/tables/{topic}/ann"))[1]["rows"]) == 3


async def test_bytes_that_are_no_text_are_base64(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send
) -> None:
    topic = make_topic()
    send(topic, {b"ann": b"\xff", b"\xfe": b"text"})
    async with serving(odradek_broker, {topic: {"key": "bytes", "value": "bytes"}}) as get:
        _, body = await get(f"/tables/{topic}")
        assert body["rows"] == [
            {"key": "ann", "value_base64": "/w=="},
            {"key_base64": "/g==", "value": "text"},
        ]


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/tables/nowhere/ann", 404, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("/tables/TOPIC/5", 404, ErrorCode.RESOURCE_NOT_FOUND),
        ("/tables/TOPIC/ann", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC?prefix=1", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC?limit=0", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC?limit=1001", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC?token=%21", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC?from=7&token=AAAA", 400, ErrorCode.INVALID_REQUEST),
        ("/tables?freshness=old", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC/1?from=yesterday", 400, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC/1?from=0", 400, ErrorCode.INVALID_REQUEST),
        ("/elsewhere", 404, ErrorCode.INVALID_REQUEST),
        ("/tables/TOPIC/1", 500, ErrorCode.INVALID_RECORD),
    ],
)
async def test_errors_are_one_line_with_kafkas_code(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send, target: str, status: int, code: ErrorCode
) -> None:
    topic = make_topic()
    send(topic, {struct.pack(">q", 1): b"{"})
    async with serving(odradek_broker, {topic: {"key": "long"}}) as get:
        http_status, body = await get(target.replace("TOPIC", topic))
        assert (http_status, body["error"]["code"], body["error"]["name"]) == (status, int(code), code.name)
        assert body["error"]["message"]


async def test_other_methods_are_refused(odradek_broker: LocalBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with serving(odradek_broker, {topic: {}}) as get:
        assert (await get(f"/tables/{topic}", method="POST"))[0] == 405


async def test_names_of_other_servers_are_refused(odradek_broker: LocalBroker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with serving(odradek_broker, {topic: {}}, hosts=frozenset({"localhost", "[::1]"})) as get:
        for host, status in (
            ("localhost:8085", 200),
            ("[::1]:80", 200),
            ("[::1]", 200),
            ("evil.example:8085", 400),
            ("", 400),
        ):
            assert (await get("/tables", host=host))[0] == status


async def test_clients_that_do_not_read_hold_up_no_one_for_long(
    odradek_broker: LocalBroker, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    limits = HttpLimits(requests_max=2, answer_s=0.3)
    async with serving(odradek_broker, {topic: {}}, limits) as get:
        slow = [asyncio.create_task(get("/tables", take=False)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        status, body = await get("/tables")
        assert (status, body["error"]["name"]) == (503, "THROTTLING_QUOTA_EXCEEDED")
        for outcome in await asyncio.gather(*slow, return_exceptions=True):
            assert isinstance(outcome, TimeoutError)
        assert (await get("/tables"))[0] == 200


# -- the command


def fetched(url: str) -> Any:
    try:
        with urllib.request.urlopen(url) as http_response:
            return json.load(http_response)
    except urllib.error.HTTPError as error:
        return json.load(error)


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main.main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_get_reads_the_topic_where_no_server_is(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic(3)
    send(topic, {b"ann": b'{"n": 1}', b"bob": b"2"})
    send(topic, {b"ann": b'{"n": 3}', b"bob": None})
    where = ("-b", odradek_broker.address)
    assert command(capsys, "table", "get", topic, "ann", *where) == (0, '{"n": 3}\n', "")
    code, out, _ = command(capsys, "table", "get", topic, "ann", "--json", *where)
    assert (code, json.loads(out)) == (0, {"key": "ann", "value": {"n": 3}})
    code, out, err = command(capsys, "table", "get", topic, "bob", *where)
    assert (code, out) == (1, "")
    assert "has no key 'bob'" in err
    code, _, err = command(capsys, "table", "get", topic, "ann", "--key", "long", *where)
    assert (code, err.count("\n")) == (1, 1)


def test_get_reads_windows_of_a_topic(
    odradek_broker: LocalBroker, make_topic: MakeTopic, send: Send, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = make_topic()
    send(topic, {b"ann" + struct.pack(">q", at): b"%d" % at for at in (0, 60_000)})
    _, out, _ = command(
        capsys, "table", "get", topic, "ann", "--windows", "1m", "--json", "-b", odradek_broker.address
    )
    assert [row["window"]["start_ms"] for row in json.loads(out)] == [0, 60_000]


def test_a_server_that_was_named_must_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "table", "get", "totals", "ann", "--server", "http://127.0.0.1:1")
    assert (code, err.count("\n")) == (1, 1)
    assert "odradek table serve" in err


def test_serve_answers_and_ends_at_a_signal(
    odradek_broker: LocalBroker,
    make_topic: MakeTopic,
    send: Send,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    totals, counts = make_topic(), make_topic()
    send(totals, {b"ann": b"1"})
    send(counts, {struct.pack(">q", 7): b"8"})
    words = [
        "table",
        "serve",
        totals,
        counts,
        "--key",
        f"{counts}=long",
        "--dir",
        str(tmp_path),
        "--listen",
        "127.0.0.1:0",
    ]
    environment = dict(os.environ, PYTHONWARNINGS="error")
    with RunningCommand(*words, "-b", odradek_broker.address, environment=environment) as server:
        address = server.address
        assert address.startswith("http://127.0.0.1:")
        body = fetched(f"{address}/tables/{counts}/7")
        for _ in range(300):
            if "error" not in body:
                break
            assert body["error"]["name"] == "COORDINATOR_LOAD_IN_PROGRESS"
            threading.Event().wait(0.1)
            body = fetched(f"{address}/tables/{counts}/7")
        assert body["value"] == 8
        assert command(capsys, "table", "get", counts, "7", "--server", address) == (0, "8\n", "")
        code, _, err = command(capsys, "table", "get", counts, "8", "--server", address)
        assert (code, "has no key" in err) == (1, True)
        assert server.stop() == 0
    assert (tmp_path / totals / "odradek-view.json").exists()
