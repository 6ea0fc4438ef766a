"""SQL in the console: texts, answers, charts, and rows that arrive within limits. Pure parts, and a server of bytes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.console.pictures.result_chart import BARS_MAX, WIDTH, chart_choice, result_chart
from odradek.console.sql.access import THREADS_MAX, CallThreads
from odradek.console.sql.editor_text import EditorRefusal, RunSettings, editor_run
from odradek.console.sql.listing import (
    GROUP_ID_CHARS_MAX,
    query_description,
    query_lines,
    source_description,
    source_lines,
)
from odradek.console.sql.live_queries import (
    LINE_BYTES_MAX,
    RESULT_BYTES_MAX,
    RESULTS_MAX,
    RESULTS_OF_BROWSER_MAX,
    ROWS_MAX,
    SqlResult,
    SqlResults,
)
from odradek.model.errors import KafkaError
from odradek.sql.rest_client import RestClient, ServerRefusal, ServerUnreachable

HEAD = {"queryId": "push-1", "columnNames": ["A"], "columnTypes": ["INTEGER"]}
COLUMNS = (("NAME", "STRING"), ("TOTAL", "DOUBLE"), ("COUNT", "BIGINT"))


@contextmanager
def server_of(
    rows: Callable[[], Iterator[bytes]], head: dict[str, Any] | None = None
) -> Iterator[RestClient]:
    """A server that answers every query with these lines, and notes when its client leaves."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for line in chain([json.dumps(HEAD if head is None else head).encode() + b"\n"], rows()):
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                pass  # the client has left

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield RestClient(url=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def result_of(client: RestClient) -> SqlResult:
    return SqlResult("SELECT", (), client.query("SELECT"))


async def ended(outcome: SqlResult) -> SqlResult:
    await outcome.wait(60)
    assert outcome.is_over
    return outcome


async def test_of_a_push_query_the_last_rows_stay_and_of_a_pull_query_the_first() -> None:
    def rows() -> Iterator[bytes]:
        return (b"[%d]\n" % number for number in range(3 * ROWS_MAX))

    with server_of(rows) as client:
        outcome = await ended(result_of(client))
        assert (outcome.state, outcome.count) == ("complete", 3 * ROWS_MAX)
        kept = outcome.rows()
        assert (len(kept), kept[-1]) == (ROWS_MAX, (3 * ROWS_MAX, [3 * ROWS_MAX - 1]))
        assert [row.number for row in outcome.rows(after=3 * ROWS_MAX - 2)] == [
            3 * ROWS_MAX - 1,
            3 * ROWS_MAX,
        ]
    with server_of(rows, {**HEAD, "queryId": None}) as client:
        outcome = await ended(result_of(client))
        assert (outcome.state, outcome.count) == ("cut", ROWS_MAX)
        assert outcome.rows()[0].values == [0]


async def test_large_rows_are_bounded_by_their_bytes() -> None:
    line = b'["%s"]\n' % (b"x" * (RESULT_BYTES_MAX // 4))
    with server_of(lambda: iter([line] * 20)) as client:
        outcome = await ended(result_of(client))
        assert (outcome.count, len(outcome.rows())) == (20, 3)
    with server_of(lambda: iter([b"[1]\n", b'["' + b"x" * LINE_BYTES_MAX + b'"]\n'])) as client:
        outcome = await ended(result_of(client))
        assert (outcome.state, outcome.count) == ("failed", 1)
        assert f"more than {LINE_BYTES_MAX} bytes" in outcome.problem


async def test_a_query_that_fails_has_its_reason_and_rows_that_are_none_stay() -> None:
    failure = json.dumps({"error_code": 50000, "message": "the batch failed <b>"}).encode() + b"\n"
    deep = b"[" * 100_000 + b"\n"
    with server_of(lambda: iter([b"[1]\n", b"nonsense\n", deep, failure])) as client:
        outcome = await ended(result_of(client))
        assert (outcome.state, outcome.problem) == ("failed", "the batch failed <b>")
        assert [row.values for row in outcome.rows()] == [[1], None, None]
        with client.query("SELECT") as query, pytest.raises(ServerUnreachable, match="no JSON"):
            list(query)
    with (
        server_of(lambda: iter([failure])) as client,
        client.query("SELECT") as query,
        pytest.raises(ServerRefusal, match="the batch failed"),
    ):
        list(query)


async def test_stop_ends_a_query_that_says_nothing() -> None:
    silence = threading.Event()

    def rows() -> Iterator[bytes]:
        yield b"[1]\n"
        silence.wait(60)

    with server_of(rows) as client:
        outcome = result_of(client)
        outcome.stop()
        await ended(outcome)
        silence.set()
        assert (outcome.state, outcome.problem) == ("stopped", "")


async def test_results_make_room_and_running_ones_are_counted() -> None:
    results = SqlResults()
    first = SqlResult("SHOW STREAMS;", ("one",), None)
    results.add("ann", first)
    for _ in range(RESULTS_OF_BROWSER_MAX):
        results.add("ann", SqlResult("", (), None))
    assert len(results) == RESULTS_OF_BROWSER_MAX
    with pytest.raises(KafkaError, match="no longer exists"):
        results.get("ann", first.result_id)
    for number in range(RESULTS_MAX):
        results.add(f"browser {number}", SqlResult("", (), None))
    assert len(results) == RESULTS_MAX
    results.close()
    assert len(results) == 0
    await asyncio.sleep(0)


def test_a_text_is_statements_and_then_at_most_a_query() -> None:
    wanted = editor_run(
        "-- a remark; with a semicolon\nSHOW STREAMS; SET 'a'='b;c'; SELECT ';' FROM x", read_only=False
    )
    assert [step.kind for step in wanted.steps] == ["statement", "set"]
    assert wanted.query == "SELECT ';' FROM x"
    settings = RunSettings()
    assert [settings.apply(step) for step in wanted.steps] == [False, True]
    assert settings.properties == {"a": "b;c"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "empty"),
        ("-- nothing\n;;", "empty"),
        ("SHOW STREAMS;" * 101, "too_many"),
        ("x" * 70_000, "too_long"),
        ("SELECT 1; SELECT 2;", "after_query"),
        ("help", "of_shell"),
        ("RUN SCRIPT 'x';", "of_shell"),
    ],
)
def test_what_the_console_does_not_run_has_its_reason(text: str, key: str) -> None:
    with pytest.raises(EditorRefusal) as refusal:
        editor_run(text, read_only=False)
    assert refusal.value.key == key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("CREATE STREAM x AS SELECT * FROM y;", "read_only"),
        ("/* SELECT */ DROP TABLE x;", "read_only"),
        ("selecting;", "read_only"),
        ("DEFINE x = 'y';", "read_only"),
        ("SELECT '; DROP TABLE x;' FROM y;", "semicolon"),
        ("SHOW STREAMS /* ; DROP TABLE x; */;", "semicolon"),
        ("SHOW `a;b`;", "semicolon"),
    ],
)
def test_a_read_only_console_refuses_all_that_it_cannot_be_sure_of(text: str, key: str) -> None:
    with pytest.raises(EditorRefusal) as refusal:
        editor_run(text, read_only=True)
    assert refusal.value.key == key


def test_reading_statements_run_in_a_read_only_console() -> None:
    text = "SET 'auto.offset.reset'='earliest'; list streams; describe x extended; explain q; print 'topic';"
    wanted = editor_run(text, read_only=True)
    assert (len(wanted.steps), wanted.query) == (4, "print 'topic';")


def test_answers_of_other_servers_lack_members() -> None:
    queries = [{"id": "B"}, {"id": "A", "state": "RUNNING", "sinks": ["X"], "sinkKafkaTopics": ["x"]}]
    failing = {
        "id": "C",
        "state": "ERROR",
        "failureCount": 2,
        "queryErrors": [{"errorMessage": "old"}, {"errorMessage": "new"}],
    }
    lines = query_lines([{"queries": [*queries, failing]}])
    assert [(line.query_id, line.state, line.problem) for line in lines] == [
        ("C", "ERROR", "new"),
        ("B", "UNKNOWN", ""),
        ("A", "RUNNING", ""),
    ]
    (stream,) = source_lines([{"streams": [{"name": "S", "topic": "s", "format": "JSON"}]}], "streams")
    assert (stream.formats, stream.is_windowed) == ("JSON", False)
    assert source_description([{}]) is None
    assert query_description([{"queryDescription": None}]) is None
    described = source_description(
        [{"sourceDescription": {"name": "S", "statistics": "messages-per-sec: 1.50 total-messages: 12"}}]
    )
    assert described is not None
    assert (described.rate, described.total, described.last) == ("1.50", "12", "")


@pytest.mark.parametrize(
    ("sent", "group_id"),
    [
        ("g", "g"),
        ("x" * GROUP_ID_CHARS_MAX, "x" * GROUP_ID_CHARS_MAX),
        ("x" * (GROUP_ID_CHARS_MAX + 1), ""),
        ("x" * 40_000, ""),
        ("a\ud800", ""),
        (None, ""),
    ],
)
def test_a_group_id_that_no_group_can_have_is_taken_for_none(sent: str | None, group_id: str) -> None:
    (line,) = query_lines([{"queries": [{"id": "A", "consumerGroupId": sent}]}])
    described = query_description([{"queryDescription": {"id": "A", "consumerGroupId": sent}}])
    assert described is not None
    assert (line.group_id, described.group_id) == (group_id, group_id)


def test_charts_draw_what_is_a_number() -> None:
    rows: list[list[object]] = [
        ["a", 2.5, 1],
        ["b", None, 2],
        ["c", -7.5, True],
        ["d", float("nan"), 1],
        ["e", 10**400, 1],
        ["short"],
    ]
    assert chart_choice(COLUMNS, "", "") == (0, 2)
    assert chart_choice(COLUMNS, "COUNT", "TOTAL") == (2, 1)
    assert chart_choice(COLUMNS, "none", "NAME") == (0, 2)
    assert chart_choice((("NAME", "STRING"),), "", "") is None
    chart = result_chart("bars", COLUMNS, rows, (0, 1))
    assert chart is not None
    assert [(bar.label, bar.value) for bar in chart.bars] == [("a", 2.5), ("c", -7.5)]
    assert [(bar.x, bar.width) for bar in chart.bars] == [(450.0, 150.0), (0.0, 450.0)]
    assert (chart.left, chart.lowest, chart.highest) == (4, -7.5, 2.5)
    assert result_chart("line", COLUMNS, rows[1:2], (0, 1)) is None


def test_charts_of_many_and_of_extreme_values_stay_within_their_picture() -> None:
    many = [[str(number), float(number), number] for number in range(500)]
    bars = result_chart("bars", COLUMNS, many, (0, 1))
    assert bars is not None
    assert (len(bars.bars), bars.bars[-1].label, bars.left) == (BARS_MAX, "499", 500 - BARS_MAX)
    extreme: list[list[object]] = [["a", 1.7e308, 1], ["b", -1.7e308, 1], ["c", 0.0, 1]]
    for kind in ("bars", "line"):
        chart = result_chart(kind, COLUMNS, extreme, (0, 1))
        assert chart is not None
        assert all(0 <= bar.x <= bar.x + bar.width <= WIDTH for bar in chart.bars)
        assert "nan" not in chart.points
        assert "inf" not in chart.points
    same = result_chart("line", COLUMNS, [["a", 0, 0]], (0, 1))
    assert same is not None
    assert same.points == "0.0,0.0"


async def test_calls_are_bounded_also_when_no_one_waits_for_them() -> None:
    threads, going_on = CallThreads(), threading.Event()
    began: list[int] = []

    def work() -> bool:
        began.append(1)
        return going_on.wait(60)

    calls = [asyncio.create_task(_waited(threads, work)) for _ in range(THREADS_MAX + 3)]
    await until(lambda: len(began) >= THREADS_MAX)
    for call in calls[:5]:
        call.cancel()
    await asyncio.sleep(0.05)
    assert len(began) == THREADS_MAX, "those that were left go on"
    going_on.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert outcomes.count(True) == THREADS_MAX + 3 - 5
    assert len(began) == THREADS_MAX + 3
    with pytest.raises(ZeroDivisionError):
        await _waited(threads, lambda: 1 // 0)


async def _waited(threads: CallThreads, work: Callable[[], Any]) -> Any:
    return await asyncio.wrap_future(await threads.start(work))
