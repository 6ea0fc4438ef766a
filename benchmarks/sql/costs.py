"""What the SQL server costs: `python -m benchmarks.sql.costs [--queries 10 50] [--rows 1000000] [--clients 100] [--json FILE]`.

One broker process and one `odradek sql serve` on it. Measured are

- *at rest*: the proportional memory of the server without queries (Java has not started);
- *pull*: `SELECT … WHERE key = …` of a table with so many rows, from so many clients with a connection each, `--rate` times a
  second in all. A request's time begins at its moment, also when the client is late;
- *push*: from the statement to its first row, of a query that groups: *cold* (Java starts) and *warm* (the median of five);
- *queries*: so many persistent queries, half of them with groups; Spark makes other code for each. The proportional memory of
  server, JVM and workers; their CPU while nothing comes, as a share of one core; from a record to its rows in the topics of all
  queries, the median of five; and the CPU seconds of one of these batches.

Needs Java. `load` is the load average before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from tests.kit.commands import RunningCommand

from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.views import PARTITIONS, TOPIC, fill, key
from benchmarks.watch import memory
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.sql.rest_client import RestClient

PATIENCE_S: Final = 300.0
SETTLE_S: Final = 10.0
REPEATS: Final = 5
EARLIEST: Final = {"auto.offset.reset": "earliest"}
_STOP_S: Final = 30.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--queries", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--rows", type=int, default=1_000_000, help="0 leaves pull queries out")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--awake", type=int, help="odradek.sql.awake.queries; the server's own without it")
    parser.add_argument("--tasks", type=int, default=0, help="odradek.sql.tasks; 0: two for each core")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures: dict[str, float] = {"load": os.getloadavg()[0]}
    with (
        OdradekNode(settings={"log.cleaner.enable": "false"}) as node,
        tempfile.TemporaryDirectory(prefix="odradek-sql-costs-") as directory,
        serving(node.bootstrap, directory, awake_count=given.awake, task_count=given.tasks) as (
            client,
            server,
        ),
    ):
        figures["at_rest_mb"] = _memory_mb(server)
        if given.rows:
            figures |= _pull(node.bootstrap, client, given.rows, given.clients, given.rate, given.seconds)
        figures |= _push(node.bootstrap, client)
        have = 0
        for count in sorted(given.queries):
            figures |= _queries(node.bootstrap, client, server, have, count, given.seconds)
            have = count
    for name, value in figures.items():
        print(f"{name:32} {value:,.3f}")
    if given.json is not None:
        conditions = {
            "rows": given.rows,
            "clients": given.clients,
            "rate": given.rate,
            "tasks": given.tasks,
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
        }
        given.json.write_text(json.dumps({"conditions": conditions, "figures": figures}, indent=1) + "\n")


@contextmanager
def serving(
    servers: str, directory: str, *, awake_count: int | None = None, task_count: int = 0
) -> Iterator[tuple[RestClient, psutil.Process]]:
    words = ["sql", "serve", "--listen", "127.0.0.1:0", "--bootstrap", servers, "--data", directory]
    words += ["--set", f"odradek.sql.tasks={task_count}"] if task_count else []
    words += [] if awake_count is None else ["--set", f"odradek.sql.awake.queries={awake_count}"]
    log_file = Path(directory) / "server.log"
    with RunningCommand(*words, log_file=log_file, environment=serve_environment()) as server:
        yield RestClient(url=server.address, timeout_s=PATIENCE_S), psutil.Process(server.pid)


def _family(server: psutil.Process) -> list[psutil.Process]:
    return [server, *server.children(recursive=True)]


def _memory_mb(server: psutil.Process) -> float:
    total = 0
    for process in _family(server):
        with suppress(psutil.Error, OSError, TypeError):  # it ended meanwhile
            total += memory(process.pid).pss_bytes
    return total / 1e6


def _cpu_by_process(server: psutil.Process) -> dict[int, float]:
    seconds = {}
    for process in _family(server):
        with suppress(psutil.Error):
            times = process.cpu_times()
            seconds[process.pid] = times.user + times.system
    return seconds


# ---- pull


def _pull(
    servers: str, client: RestClient, row_count: int, client_count: int, rate: float, seconds: float
) -> dict[str, float]:
    fill(servers, row_count)
    client.execute(
        "CREATE SOURCE TABLE users (id STRING PRIMARY KEY, n BIGINT, sum DOUBLE, name STRING)"
        f" WITH (KAFKA_TOPIC='{TOPIC}', VALUE_FORMAT='JSON', PARTITIONS={PARTITIONS});"
    )
    began = time.monotonic()
    _until(lambda: _row_count(client, row_count - 1) == 1, "the last row of the table")
    loaded_s = time.monotonic() - began
    waits = sorted(asyncio.run(_asked(client.url, row_count, client_count, rate, seconds)))
    return {
        "pull_loading_s": loaded_s,
        "pull_requests_per_second": len(waits) / seconds,
        "pull_p50_ms": waits[len(waits) // 2],
        "pull_p99_ms": waits[len(waits) * 99 // 100],
        "pull_max_ms": waits[-1],
    }


def _statement(number: int) -> str:
    return f"SELECT id, n, sum FROM users WHERE id = '{key(number).decode()}';"


def _row_count(client: RestClient, number: int) -> int:
    with client.query(_statement(number)) as query:
        return len(list(query))


async def _asked(url: str, row_count: int, client_count: int, rate: float, seconds: float) -> list[float]:
    place = urllib.parse.urlsplit(url)
    connections = [await asyncio.open_connection(place.hostname, place.port) for _ in range(client_count)]
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_ask(number, begin, seconds, client_count / rate, row_count, *connection))
            for number, connection in enumerate(connections)
        ]
    return [wait_ms for task in tasks for wait_ms in task.result()]


async def _ask(
    client_number: int,
    begin: float,
    seconds: float,
    every_s: float,
    row_count: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> list[float]:
    """Milliseconds of each request."""
    chance = random.Random(client_number)
    moment = begin + chance.random() * every_s
    waits = []
    while moment < begin + seconds:
        await asyncio.sleep(max(0.0, moment - time.perf_counter()))
        body = json.dumps({"ksql": _statement(chance.randrange(row_count))}).encode()
        writer.write(
            b"POST /query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            + f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        rows = await _body(reader)
        if b'"row"' not in rows:
            raise SystemExit(f"a pull query has no row: {rows[:300]!r}")
        waits.append((time.perf_counter() - moment) * 1000)
        moment += every_s
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return waits


async def _body(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise SystemExit(f"a pull query was refused: {head!r}")
    for line in head.split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return await reader.readexactly(int(line.split(b":")[1]))
    content = b""
    while size := int(await reader.readline(), 16):
        content += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readexactly(2)
    return content


# ---- push


def _push(servers: str, client: RestClient) -> dict[str, float]:
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("orders", 1)])
    with Producer(servers) as producer:
        producer.send_and_wait("orders", b'{"NUMBER":1}', key=b"ann")
    client.execute(
        "CREATE STREAM orders (customer STRING KEY, number BIGINT) WITH (KAFKA_TOPIC='orders', VALUE_FORMAT='JSON');"
    )
    cold_s = _first_row(client)
    return {
        "push_cold_s": cold_s,
        "push_warm_s": statistics.median(_first_row(client) for _ in range(REPEATS)),
    }


def _first_row(client: RestClient) -> float:
    began = time.monotonic()
    statement = "SELECT customer, COUNT(*) AS n FROM orders GROUP BY customer EMIT CHANGES;"
    with client.query(statement, properties=EARLIEST) as query:
        next(iter(query))
        return time.monotonic() - began


# ---- persistent queries


def _queries(
    servers: str, client: RestClient, server: psutil.Process, have: int, count: int, seconds: float
) -> dict[str, float]:
    began = time.monotonic()
    for number in range(have, count):
        client.execute(
            f"CREATE TABLE sums_{number} AS SELECT customer, SUM(number + {number}) AS n FROM orders GROUP BY customer;"
            if number % 2
            else f"CREATE STREAM large_{number} AS SELECT customer, number + {number} AS n FROM orders WHERE number > 0;",
            properties=EARLIEST,
        )
    topics = [f"SUMS_{number}" if number % 2 else f"LARGE_{number}" for number in range(count)]
    for topic in reversed(topics):
        _until(partial(_end, servers, topic), f"a row in {topic}")
    started_s = time.monotonic() - began
    before = _cpu_by_process(server)
    delays = _delays(servers, topics)
    batches_s = _used_s(before, server)
    time.sleep(SETTLE_S)
    before, began = _cpu_by_process(server), time.monotonic()
    time.sleep(seconds)
    used_s = _used_s(before, server)
    return {
        f"queries_{count}_started_s": started_s,
        f"queries_{count}_memory_mb": _memory_mb(server),
        f"queries_{count}_processes": len(_family(server)),
        f"queries_{count}_idle_share_of_core": used_s / (time.monotonic() - began),
        f"queries_{count}_delay_s": statistics.median(delays),
        f"queries_{count}_batch_cpu_s": batches_s / (REPEATS * count),
    }


def _used_s(before: dict[int, float], server: psutil.Process) -> float:
    """Returns the CPU seconds of the server's processes since `before`."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in _cpu_by_process(server).items())


def _end(servers: str, topic: str) -> int:
    with Admin(servers) as admin:
        return admin.list_offsets({TopicPartition(topic, 0): -1})[TopicPartition(topic, 0)].offset


def _delays(servers: str, topics: list[str]) -> list[float]:
    """Seconds from a record until every topic has its row."""
    delays = []
    with (
        Producer(servers) as producer,
        Consumer(servers, auto_offset_reset="earliest", isolation_level="read_committed") as consumer,
    ):
        consumer.assign([TopicPartition(topic, 0) for topic in topics])
        _wait_for_rows(consumer, topics)
        while consumer.poll(2.0):
            continue
        for number in range(REPEATS):
            began = time.monotonic()
            producer.send_and_wait("orders", b'{"NUMBER":%d}' % (number + 2), key=b"bob")
            _wait_for_rows(consumer, topics)
            delays.append(time.monotonic() - began)
    return delays


def _wait_for_rows(consumer: Consumer, topics: list[str]) -> None:
    missing = set(topics)

    def have_all_come() -> bool:
        missing.difference_update(record.topic for record in consumer.poll(0.05))
        return not missing

    _until(have_all_come, "a row of each query", every_s=0.0)


def _until(check: Callable[[], Any], what: str, every_s: float = 0.1) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {PATIENCE_S:g} s")
        time.sleep(every_s)


if __name__ == "__main__":
    main()
