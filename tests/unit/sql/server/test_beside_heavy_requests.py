"""A second user's questions are answered while long statements of another are parsed, checked, planned and run.

No time is measured: the question's answer comes while the answer to the heavy request is still to come.
"""

from __future__ import annotations

import http.client
import json
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from tests.unit.sql.running_server import sql_server

from odradek.testing import LocalBroker

ANSWERS_MIN: Final = 3
"""A loop that is held answers once before the heavy request, and once after each of its steps."""
NUMBERS = ",".join(map(str, range(12_000)))
TEXTS = {
    "too many statements": ("/ksql", "SHOW STREAMS;" * 10_000),
    "comments that do not end": ("/ksql", "/*" * 150_000),
    "a long list": ("/ksql", f"EXPLAIN SELECT * FROM numbers WHERE n IN ({NUMBERS}) EMIT CHANGES;"),
    "a long list in a query": ("/query-stream", f"SELECT * FROM numbers WHERE n IN ({NUMBERS});"),
    "many conditions": ("/query-stream", f"SELECT * FROM numbers WHERE {' OR '.join(['n = 1'] * 3_000)};"),
    "many columns": (
        "/query-stream",
        f"SELECT {', '.join(f'n + {i} AS c{i}' for i in range(6_000))} FROM numbers;",
    ),
    "long sums": ("/ksql", f"SELECT * FROM numbers WHERE n = {'+'.join(['1'] * 14_000)};"),
    "many rows": ("/ksql", "INSERT INTO numbers VALUES (1);" * 100),
    "half a quote": ("/ksql", "'" + "a''" * 300_000),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("sql")
    with LocalBroker() as broker, sql_server(broker.address, "heavy", directory) as client:
        client.execute(
            "CREATE STREAM numbers (n INT) WITH (KAFKA_TOPIC='numbers', VALUE_FORMAT='JSON', PARTITIONS=1);"
        )
        yield client.url


def asked(url: str) -> int:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", "/info")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("kind", TEXTS)
def test_a_question_is_answered_beside_a_heavy_request(url: str, kind: str) -> None:
    path, text = TEXTS[kind]
    answered = 0
    heavy = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        heavy.request("POST", path, json.dumps({"sql" if "query" in path else "ksql": text}))
        ready = select.poll()  # `select.select` refuses descriptors from 1024 on
        ready.register(heavy.sock, select.POLLIN)
        while not ready.poll(0):
            assert asked(url) == 200
            answered += 1
        assert answered >= ANSWERS_MIN
        assert heavy.getresponse().status < 500
    finally:
        heavy.close()
