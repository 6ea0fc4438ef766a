"""The metrics listeners of the command line's servers: each process shows what it does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import eventually

pytest.importorskip("pyspark", reason="PySpark is absent")

from tests.spark.observed.test_query_metrics import Samples, scrape

from odradek.sql.rest_client import RestClient

WAIT_S = 120


@contextmanager
def running(log_file: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command of `odradek` with a metrics listener; its output goes to the file."""
    command = [sys.executable, "-m", "odradek.cli.main", *words, "--metrics", "127.0.0.1:0"]
    with log_file.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0, log_file.read_text()


def in_log(log_file: Path, pattern: str) -> str:
    match = eventually(
        lambda: re.search(pattern, log_file.read_text()), lambda: log_file.read_text(), seconds=WAIT_S
    )
    return match[1]


def scraped_when(url: str, check: Callable[[Samples], bool]) -> Samples:
    return eventually(lambda: scrape(url), holds=check, seconds=WAIT_S, every_s=0.2)


def test_a_server_of_tables_shows_how_far_they_are(
    servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    table = new_topic(**{"cleanup.policy": "compact"})
    table.send(b"1", key=b"ann")
    log_file = tmp_path / "log"
    with running(log_file, "table", "serve", table.name, "--listen", "127.0.0.1:0", "--bootstrap", servers):
        url = in_log(log_file, r"metrics on (http://\S+)")
        of_topic = (("topic", table.name),)
        live = (("status", "live"), ("topic", table.name))
        samples = scraped_when(url, lambda samples: samples.get(("odradek_view_status", live)) == 1)
        assert samples["odradek_view_lag_offsets", of_topic] == 0
        table.send(b"2", key=b"bob")
        applied = (("partition", "0"), ("topic", table.name))
        scraped_when(
            url, lambda samples: samples.get(("odradek_view_partition_applied_offset", applied)) == 2
        )


def test_a_sql_server_shows_its_queries_and_their_progress(
    servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    source = new_topic()
    source.send(b'{"ITEM": "tea"}', b'{"ITEM": "bun"}')
    log_file = tmp_path / "log"
    words = ("sql", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "sql"))
    with running(log_file, *words, "--service-id", "metrics", "--bootstrap", servers):
        url = in_log(log_file, r"metrics_listener_opened.*url=\"?(http://[^\s\"]+)")
        client = RestClient(url=in_log(log_file, r"ready (http://\S+)"), timeout_s=WAIT_S)
        assert scrape(url)["odradek_sql_engine_running", ()] == 0
        client.execute(
            f"CREATE STREAM s (item STRING) WITH (kafka_topic='{source.name}', value_format='JSON');"
        )
        client.execute("CREATE STREAM teas AS SELECT * FROM s;", properties={"auto.offset.reset": "earliest"})
        running_one = (("state", "RUNNING"),)
        scraped_when(url, lambda samples: samples.get(("odradek_sql_queries", running_one)) == 1)
        samples = scraped_when(
            url,
            lambda samples: any(
                name == "query_input_rows_total" and value == 2 for (name, _), value in samples.items()
            ),
        )
        assert samples["odradek_sql_engine_running", ()] == 1
        assert samples["queries", ()] == 1


def test_an_archive_shows_its_query(servers: str, new_topic: Callable[..., Any], tmp_path: Path) -> None:
    topic = new_topic()
    topic.send(b"1", b"2", b"3")
    log_file = tmp_path / "log"
    words = ("archive", "run", str(tmp_path / "archive"), "-t", topic.name, "--every", "1s")
    with running(log_file, *words, "--bootstrap", servers):
        url = in_log(log_file, r"metrics on (http://\S+)")
        scraped_when(
            url,
            lambda samples: any(
                name == "query_input_rows_total" and value == 3 for (name, _), value in samples.items()
            ),
        )
