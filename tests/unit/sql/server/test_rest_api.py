"""The doors of ksqlDB's REST API: shapes, errors, streams of rows, in HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import base64
import http.client
import json
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sql.sql_service import ScriptedService, served

from odradek.model.errors import ConfigError
from odradek.sql.rest_client import RestClient, ServerRefusal, ServerUnreachable
from odradek.sql.server.gate import LOOPBACK, GateLimits, HttpUsers
from odradek.values.errors import SqlError


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def url(service: ScriptedService) -> Iterator[str]:
    with served(service) as address:
        yield address


def ask(
    url: str, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, str, http.client.HTTPResponse]:
    place = urllib.parse.urlsplit(url)
    assert place.hostname is not None
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=20)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, content, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text, response


def test_statements_are_answered_with_entities(url: str, service: ScriptedService) -> None:
    status, text, response = ask(
        url,
        "POST",
        "/ksql",
        {"ksql": "CREATE …;", "streamsProperties": {"a": "b"}, "sessionVariables": {"n": 1}},
    )
    assert status == 200
    assert response.headers["content-type"] == "application/vnd.ksql.v1+json"
    assert json.loads(text)[0]["commandStatus"]["status"] == "SUCCESS"
    assert service.requests == [("CREATE …;", {"a": "b"}, {"n": "1"})]


def test_a_wrong_statement_is_40001_with_its_place(url: str) -> None:
    status, text, _ = ask(url, "POST", "/ksql", {"ksql": "SHOW wrong;"})
    said = json.loads(text)
    assert (status, said["@type"], said["error_code"]) == (400, "statement_error", 40001)
    assert said["message"] == "line 1:6: no such thing\n  SHOW wrong;\n       ^\nDid you mean right?"
    assert (said["statementText"], said["entities"]) == ("SHOW wrong;", [])


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"no json", "is no JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "needs the member ksql"),
        (b'{"ksql": "SHOW", "commandSequenceNumber": "1"}', "commandSequenceNumber must be a whole number"),
        (b'{"ksql": "SHOW", "commandSequenceNumber": true}', "commandSequenceNumber must be a whole number"),
    ],
)
def test_a_request_that_is_no_request_is_40000(url: str, body: bytes, says: str) -> None:
    status, text, _ = ask(url, "POST", "/ksql", body)
    assert (status, json.loads(text)["error_code"]) == (400, 40000)
    assert says in json.loads(text)["message"]


def test_query_stream_has_a_header_and_a_line_for_each_row(url: str, service: ScriptedService) -> None:
    status, text, response = ask(url, "POST", "/query-stream", {"sql": "SELECT", "properties": {"p": "q"}})
    assert (status, response.headers["content-type"]) == (200, "application/vnd.ksqlapi.delimited.v1")
    assert [json.loads(line) for line in text.splitlines()] == [
        {"queryId": None, "columnNames": ["ID", "NAME"], "columnTypes": ["BIGINT", "STRING"]},
        [1, "one"],
        [2, "zwei ö"],
    ]
    assert service.requests[0][1] == {"p": "q"}
    assert service.closed == ["pull"]


def test_query_stream_as_one_array(url: str) -> None:
    _, text, response = ask(url, "POST", "/query-stream", {"sql": "SELECT"}, Accept="application/json")
    assert response.headers["content-type"] == "application/json"
    assert json.loads(text)[1:] == [[1, "one"], [2, "zwei ö"]]


def test_query_has_header_rows_and_a_final_message(url: str) -> None:
    _, text, _ = ask(url, "POST", "/query", {"ksql": "SELECT"})
    assert json.loads(text) == [
        {"header": {"queryId": "", "schema": "`ID` BIGINT, `NAME` STRING"}},
        {"row": {"columns": [1, "one"]}},
        {"row": {"columns": [2, "zwei ö"]}},
        {"finalMessage": "Query Completed"},
    ]


def test_a_short_answer_is_one_body(url: str, service: ScriptedService) -> None:
    service.is_short = True
    _, text, response = ask(url, "POST", "/query", {"ksql": "SELECT"})
    assert response.headers["content-length"] == str(len(text.encode()))
    assert [list(part) for part in json.loads(text)] == [["header"], ["row"], ["row"], ["finalMessage"]]
    assert service.closed == ["pull"]


def test_a_push_query_goes_on_until_it_is_closed(url: str, service: ScriptedService) -> None:
    client = RestClient(url=url)
    with client.query("SELECT EMIT CHANGES;") as query:
        rows = iter(query)
        assert (query.query_id, next(rows), next(rows)) == ("transient_1", [1, "one"], [2, "zwei ö"])
        client.close_query("transient_1")
        assert list(rows) == []
    with pytest.raises(ServerRefusal, match="No query with id transient_1"):
        client.close_query("transient_1")


def test_a_client_that_goes_away_ends_its_query(url: str, service: ScriptedService) -> None:
    query = RestClient(url=url).query("SELECT EMIT CHANGES;")
    next(iter(query))
    query.close()
    for _ in range(2_000):
        if service.closed:
            break
        ask(url, "GET", "/info")
    assert service.closed == ["transient_1"]


@pytest.mark.parametrize(
    ("problem", "code", "message"),
    [
        (SqlError("the source is gone"), 40001, "the source is gone"),
        (ZeroDivisionError("by zero"), 50000, "unexpected ZeroDivisionError: by zero"),
    ],
)
@pytest.mark.parametrize(
    ("path", "accept", "is_array"),
    [
        ("/query-stream", "", False),
        ("/query-stream", "application/json", True),
        ("/query", "", True),
    ],
)
def test_an_answer_that_fails_ends_with_what_is_wrong(
    url: str,
    service: ScriptedService,
    problem: Exception,
    code: int,
    message: str,
    path: str,
    accept: str,
    is_array: bool,
) -> None:
    service.row_problem = problem
    status, text, _ = ask(url, "POST", path, {"sql": "SELECT"}, Accept=accept)
    parts = json.loads(text) if is_array else [json.loads(line) for line in text.splitlines()]
    last = parts[-1].get("errorMessage", parts[-1])
    assert (status, len(parts)) == (200, 4)
    assert (last["error_code"], last["message"]) == (code, message)
    assert service.closed == ["pull"]


def test_inserts_are_acknowledged_row_by_row(url: str, service: ScriptedService) -> None:
    body = b'{"target":"numbers"}\n{"ID":1}\n\n{"ID":2}'
    _, text, _ = ask(url, "POST", "/inserts-stream", body)
    assert text == '{"status":"ok","seq":0}\n{"status":"ok","seq":1}\n'
    assert service.inserted == [("numbers", {"ID": 1}), ("numbers", {"ID": 2})]
    _, text, _ = ask(url, "POST", "/inserts-stream", body, Accept="application/json")
    assert json.loads(text) == [{"status": "ok", "seq": 0}, {"status": "ok", "seq": 1}]


def test_a_row_that_is_refused_ends_the_inserts(url: str, service: ScriptedService) -> None:
    _, text, _ = ask(url, "POST", "/inserts-stream", b'{"target":"n"}\n{"ID":1}\n{"BAD":1}\n{"ID":3}\n')
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["status"] for line in lines] == ["ok", "error"]
    assert (lines[1]["seq"], lines[1]["error_code"]) == (1, 40001)
    assert len(service.inserted) == 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"ID":1e', "row 1 is no JSON"),
        (b"[" * 100_000, "row 1 is no JSON"),
        (b"7", "a row is an object"),
        (b"7" * (4 << 20) + b"7", "a line is longer than 4194304 bytes"),
    ],
    ids=["cut short", "deep", "no object", "long"],
)
@pytest.mark.parametrize("as_array", [False, True])
def test_a_line_that_is_no_row_ends_the_inserts(
    url: str, service: ScriptedService, line: bytes, says: str, as_array: bool
) -> None:
    body = b'{"target":"n"}\n{"ID":1}\n' + line
    accept = "application/json" if as_array else ""
    _, text, _ = ask(url, "POST", "/inserts-stream", body, Accept=accept)
    parts = json.loads(text) if as_array else [json.loads(part) for part in text.splitlines()]
    assert [(part["status"], part["seq"]) for part in parts] == [("ok", 0), ("error", 1)]
    assert says in parts[1]["message"]
    assert service.inserted == [("n", {"ID": 1})]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "/info",
            {
                "KsqlServerInfo": {
                    "version": "1.2.3",
                    "kafkaClusterId": "c",
                    "ksqlServiceId": "s",
                    "serverStatus": "RUNNING",
                }
            },
        ),
        ("/healthcheck", {"isHealthy": True, "details": {}, "serverState": "READY"}),
        ("/status", {"commandStatuses": {"stream/`NUMBERS`/create": "SUCCESS"}}),
        ("/status/stream/%60NUMBERS%60/create", {"status": "SUCCESS", "message": "Stream created"}),
        ("/clusterStatus", {"clusterStatus": {"localhost:8088": {"hostAlive": True}}}),
        ("/is_valid_property/auto.offset.reset", True),
    ],
)
def test_what_is_asked_with_get(url: str, path: str, expected: Any) -> None:
    status, text, _ = ask(url, "GET", path)
    assert (status, json.loads(text)) == (200, expected)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/status/stream/x/create", 404),
        ("GET", "/nothing", 404),
        ("GET", "/ksql", 405),
        ("GET", "/is_valid_property/x", 400),
    ],
)
def test_what_is_not_there_has_a_code(url: str, method: str, path: str, status: int) -> None:
    answered, text, _ = ask(url, method, path)
    assert answered == status
    assert json.loads(text)["error_code"] // 100 == status


@pytest.mark.parametrize(
    ("path", "body", "expected", "noted"),
    [
        ("/heartbeat", {"hostInfo": {}}, {"isOk": True}, ("heartbeat", {"hostInfo": {}})),
        ("/lag", {"ksqlHost": {}}, {"isOk": True}, ("lag", {"ksqlHost": {}})),
        ("/ksql/terminate", {"deleteTopicList": ["x"]}, [], ("terminate", ["x"])),
        ("/ksql/terminate", b"", [], ("terminate", [])),
    ],
)
def test_other_servers_and_operators_are_heard(
    url: str, service: ScriptedService, path: str, body: Any, expected: Any, noted: tuple[str, Any]
) -> None:
    status, text, _ = ask(url, "POST", path, body)
    assert (status, json.loads(text)) == (200, expected)
    assert service.messages == [noted]


def test_users_must_give_their_password(service: ScriptedService, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text("# people\nann:se:cret\n\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="every user of this machine can read it"):
        HttpUsers.from_file(file)
    file.chmod(0o600)
    assert "se:cret" not in repr(HttpUsers.from_file(file))
    with served(service, HttpUsers.from_file(file)) as url:
        status, text, response = ask(url, "GET", "/info")
        assert (status, json.loads(text)["error_code"]) == (401, 40100)
        assert response.headers["www-authenticate"].startswith("Basic")
        for given in ("ann:other", "bob:se:cret", "ann"):
            wrong = base64.b64encode(given.encode()).decode()
            assert ask(url, "GET", "/info", Authorization=f"Basic {wrong}")[0] == 401
        assert RestClient(url=url, user="ann", password="se:cret").info()["version"] == "1.2.3"


@pytest.mark.parametrize("text", ["", "ann\n", "ann:\n", ":x\n"])
def test_a_file_of_users_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "users"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="name:password"):
        HttpUsers.from_file(file)


def test_a_server_of_this_machine_answers_no_web_page_of_strangers(service: ScriptedService) -> None:
    with served(service, limits=GateLimits(hosts=LOOPBACK)) as url:
        assert ask(url, "GET", "/info")[0] == 200
        assert ask(url, "GET", "/info", Host="evil.example:8088")[0] == 400


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 400), ("null", 400), ("http://127.0.0.1:1", 400), ("own", 200)],
)
def test_a_web_page_of_another_site_runs_no_statement(
    service: ScriptedService, origin: str, status: int
) -> None:
    with served(service) as url:
        assert ask(url, "GET", "/info", Origin=url if origin == "own" else origin)[0] == status


def test_an_address_without_a_server_is_one_line() -> None:
    with pytest.raises(ServerUnreachable, match="start one with `odradek sql serve`"):
        RestClient(url="http://127.0.0.1:1").info()
