"""Views over HTTP under load: `python -m benchmarks.views_http [--keys 1000000] [--clients 100] [--rounds 3] [--seconds 20]`.

One broker, `odradek table serve` with a view on disk (a process), and clients in a third process: each keeps one connection and
asks for random keys, one after another. Measured are, for each round,

- *full speed*: every client asks again at once: requests a second, p50, p99 and the worst;
- *paced*: all clients together ask `--rate` times a second, at fixed moments. A request's time begins at its moment, also when
  the client is late: so nothing is left out when the server stalls;
- *changing*: paced, while a producer changes `--changes` keys a second. `lag_max` is the largest lag that an answer says.

Run it on a machine that does nothing else: clients and server share its cores, so at full speed the figures are of both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.odradek_node import OdradekNode
from benchmarks.views import PARTITIONS, TOPIC, fill, key, served
from odradek import Producer

_LIVE_WITHIN_S: Final = 300.0
_FILLER: Final = b"y" * 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What the clients do. `rate`: requests a second, of all together; None: as fast as they can."""

    host: str
    port: int
    keys: int
    clients: int
    seconds: float
    seed: int
    rate: float | None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--changes", type=float, default=1_000.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    samples: list[dict[str, Any]] = []
    with (
        OdradekNode(settings={"log.cleaner.enable": "false"}) as node,
        tempfile.TemporaryDirectory(prefix="odradek-views-") as directory,
    ):
        fill(node.bootstrap, given.keys)
        with served(node, directory) as address:
            place = urllib.parse.urlsplit(address)
            _wait_until_live(place.hostname or "", place.port or 0)
            for number in range(given.rounds):
                for what, rate in (("full speed", None), ("paced", given.rate), ("changing", given.rate)):
                    load = Load(
                        host=place.hostname or "",
                        port=place.port or 0,
                        keys=given.keys,
                        clients=given.clients,
                        seconds=given.seconds,
                        seed=number,
                        rate=rate,
                    )
                    changes = given.changes if what == "changing" else 0.0
                    with _changing(node.bootstrap, given.keys, changes):
                        figures = _in_a_process(load)
                    sample = {"what": what, "round": number, "load": os.getloadavg()[0], **figures}
                    samples.append(sample)
                    print(_line(sample), file=sys.stderr, flush=True)
    for what in dict.fromkeys(sample["what"] for sample in samples):
        of_this = [sample for sample in samples if sample["what"] == what]
        names = [name for name in of_this[0] if name not in ("what", "round")]
        print(_line({"what": what, **{n: statistics.median(sample[n] for sample in of_this) for n in names}}))
    if given.json is not None:
        conditions = {
            "keys": given.keys,
            "clients": given.clients,
            "partitions": PARTITIONS,
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
        }
        given.json.write_text(json.dumps({"conditions": conditions, "samples": samples}, indent=1) + "\n")


def _line(sample: dict[str, Any]) -> str:
    figures = (f"{name} {value:,.2f}" for name, value in sample.items() if isinstance(value, float))
    return f"{sample['what']:12} {'  '.join(figures)}"


def _in_a_process(load: Load) -> dict[str, float]:
    """The clients do not share an interpreter with the producer."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(figures_of, (load,))


def figures_of(load: Load) -> dict[str, float]:
    """Run the clients, and sum up what they saw."""
    return asyncio.run(_asked(load))


async def _asked(load: Load) -> dict[str, float]:
    connections = [await asyncio.open_connection(load.host, load.port) for _ in range(load.clients)]
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_client(load, number, begin, *connection))
            for number, connection in enumerate(connections)
        ]
    took_s = time.perf_counter() - begin
    milliseconds = sorted(wait for task in tasks for wait, _ in task.result())
    lags = [lag for task in tasks for _, lag in task.result()]
    count = len(milliseconds)
    return {
        "requests_per_second": count / took_s,
        "p50_ms": milliseconds[count // 2],
        "p99_ms": milliseconds[count * 99 // 100],
        "max_ms": milliseconds[-1],
        "lag_max": float(max(lags)),
    }


async def _client(
    load: Load, number: int, begin: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> list[tuple[float, int]]:
    """Milliseconds of each request, and the lag that its answer says."""
    chance = random.Random(load.seed * 10_007 + number)
    every_s = None if load.rate is None else load.clients / load.rate
    moment = begin if every_s is None else begin + chance.random() * every_s
    answers = []
    while (now := time.perf_counter()) < begin + load.seconds:
        if every_s is None:
            moment = now
        elif moment > now:
            await asyncio.sleep(moment - now)
        path = f"/tables/{TOPIC}/{key(chance.randrange(load.keys)).decode()}?freshness=brief"
        freshness = (await _get(reader, writer, load, path))["freshness"]
        answers.append(((time.perf_counter() - moment) * 1000, freshness["lag"] or 0))
        if every_s is not None:
            moment += every_s
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answers


async def _get(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, load: Load, path: str
) -> dict[str, Any]:
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {load.host}:{load.port}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(lengths[0].split(b":")[1]))
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{path}: {head.splitlines()[0].decode()}: {body.decode()}")
    answer: dict[str, Any] = json.loads(body)
    return answer


def _wait_until_live(host: str, port: int) -> None:
    async def look() -> None:
        load = Load(host=host, port=port, keys=0, clients=0, seconds=0, seed=0, rate=None)
        reader, writer = await asyncio.open_connection(host, port)
        async with asyncio.timeout(_LIVE_WITHIN_S):
            while True:
                tables = (await _get(reader, writer, load, "/tables"))["tables"]
                if tables[0]["freshness"]["status"] == "live":
                    break
                await asyncio.sleep(0.1)
        writer.close()

    asyncio.run(look())


@contextmanager
def _changing(servers: str, key_count: int, changes_per_s: float) -> Iterator[None]:
    """So many keys change each second meanwhile."""
    if not changes_per_s:
        yield
        return
    ended = threading.Event()

    def change() -> None:
        chance, count, begin = random.Random(7), 0, time.perf_counter()
        with Producer(servers, linger_ms=5) as producer:
            while not ended.wait(0.01):
                due = int((time.perf_counter() - begin) * changes_per_s)
                for number in range(count, due):
                    value = b'{"n": %d, "sum": 12.5, "name": "%b"}' % (number, _FILLER)
                    producer.send(TOPIC, value, key=key(chance.randrange(key_count)))
                count = due

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60)


if __name__ == "__main__":
    main()
