"""What the number of commands costs the SQL server: `python -m benchmarks.sql.commands [--commands 100 1000 5000]`.

One broker and one `odradek sql serve`. At each number of objects that the catalog holds, three figures:

- a statement that makes one more (CREATE STREAM), and a plan (EXPLAIN of a filter and a projection): CPU milliseconds of the
  server, the mean of `REPEATS`, and the median of the time until the answer;
- a start with these commands: CPU seconds of the server, and seconds until it answers.

`load` is the load average before.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import psutil

from benchmarks.odradek_node import OdradekNode
from benchmarks.sql.costs import serving
from odradek.sql.rest_client import RestClient

REPEATS: Final = 50
BATCH: Final = 50
"""Statements of one request where only their number counts."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commands", type=int, nargs="*", default=[100, 1000, 5000])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, float] = {"load": os.getloadavg()[0]}
    with (
        OdradekNode(settings={"log.cleaner.enable": "false"}) as node,
        tempfile.TemporaryDirectory(prefix="odradek-sql-commands-") as directory,
    ):
        count = 0
        for wanted in sorted(options.commands):
            with serving(node.bootstrap, directory) as (client, server):
                count = _fill(client, count, wanted)
                figures |= _at(client, server, wanted, count)
                count += REPEATS
            began = time.monotonic()
            with serving(node.bootstrap, directory) as (client, server):
                client.execute(f"DESCRIBE s_{count - 1};")
                figures[f"start_{wanted}_s"] = time.monotonic() - began
                figures[f"start_{wanted}_cpu_s"] = _cpu_s(server)
    for name, value in figures.items():
        print(f"{name:32} {value:,.3f}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _fill(client: RestClient, first: int, end: int) -> int:
    for start in range(first, end, BATCH):
        numbers = range(start, min(start + BATCH, end))
        client.execute(" ".join(map(_create, numbers)))
    return max(first, end)


def _at(client: RestClient, server: psutil.Process, wanted: int, count: int) -> dict[str, float]:
    explain = "EXPLAIN SELECT id, n + 1 AS m FROM s_0 WHERE n > 0 EMIT CHANGES;"
    client.execute(explain)
    create = _spent(server, lambda number: client.execute(_create(count + number)))
    plan = _spent(server, lambda _: client.execute(explain))
    return {
        f"create_{wanted}_cpu_ms": create[0],
        f"create_{wanted}_ms": create[1],
        f"plan_{wanted}_cpu_ms": plan[0],
        f"plan_{wanted}_ms": plan[1],
    }


def _spent(server: psutil.Process, run: Callable[[int], object]) -> tuple[float, float]:
    """Returns CPU milliseconds for each call, and the median of milliseconds until it returned."""
    before, waits = _cpu_s(server), []
    for number in range(REPEATS):
        began = time.perf_counter()
        run(number)
        waits.append(1000 * (time.perf_counter() - began))
    return 1000 * (_cpu_s(server) - before) / REPEATS, statistics.median(waits)


def _create(number: int) -> str:
    return (
        f"CREATE STREAM s_{number} (id STRING KEY, n BIGINT, name STRING)"
        " WITH (KAFKA_TOPIC='events', VALUE_FORMAT='JSON', PARTITIONS=1);"
    )


def _cpu_s(server: psutil.Process) -> float:
    times = server.cpu_times()
    seconds: float = times.user + times.system
    return seconds


if __name__ == "__main__":
    main()
