"""Persistent and push queries of the SQL server: they survive its death, and the loss of its directory."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.client import Producer
from odradek.sql.rest_client import RestClient

PATIENCE_S = 180
EARLIEST = {"auto.offset.reset": "earliest"}


@contextmanager
def serving(
    servers: str, service_id: str, directory: Path
) -> Iterator[tuple[RestClient, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "odradek.cli.main", "sql", "serve", "--listen", "127.0.0.1:0"]
    arguments = ["--bootstrap", servers, "--data", str(directory), "--service-id", service_id]
    with (directory.parent / f"{directory.name}.log").open("w") as log:
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("ready "), "the server did not start"
        yield RestClient(url=line.split()[1], timeout_s=PATIENCE_S), process
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def wait_for(ask: Callable[[], Any], expected: Any) -> None:
    """Poll: there is no call when a query has written its rows."""
    deadline = time.monotonic() + PATIENCE_S
    while (rows := ask()) != expected:
        assert time.monotonic() < deadline, f"{rows}, and not {expected}"
        time.sleep(0.5)


def test_queries_go_on_after_kill_and_without_their_directory(servers: str, tmp_path: Path) -> None:
    def totals(client: RestClient) -> list[list[Any]]:
        with client.query("SELECT * FROM sql_totals;") as query:
            return sorted(query)

    with serving(servers, "killed", tmp_path / "a") as (client, process):
        client.execute(
            "CREATE STREAM sql_orders (customer STRING KEY, amount INT)"
            " WITH (KAFKA_TOPIC='sql-orders', VALUE_FORMAT='JSON', PARTITIONS=1);"
            " INSERT INTO sql_orders VALUES ('ann', 1); INSERT INTO sql_orders VALUES ('bob', 2);"
            " CREATE TABLE sql_totals AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM sql_orders"
            " GROUP BY customer;",
            properties=EARLIEST,
        )
        wait_for(lambda: totals(client), [["ann", 1, 1], ["bob", 1, 2]])
        with client.query("SELECT UCASE(customer) AS who FROM sql_totals EMIT CHANGES LIMIT 2;") as query:
            assert sorted(query) == [["ANN"], ["BOB"]]
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    with Producer(servers) as producer:
        producer.send("sql-orders", b'{"AMOUNT":10}', key=b"ann")
    with serving(servers, "killed", tmp_path / "b") as (client, _):
        wait_for(lambda: totals(client), [["ann", 2, 11], ["bob", 1, 2]])
        (listed,) = client.execute("SHOW QUERIES;")[0]["queries"]
        assert re.fullmatch(r"CTAS_SQL_TOTALS_\d+", listed["id"])
        ended = client.execute("TERMINATE ALL; DROP TABLE sql_totals DELETE TOPIC; SHOW QUERIES;")[-1]
        assert ended["queries"] == []
