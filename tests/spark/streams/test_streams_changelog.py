"""State that comes back from changelogs, without the checkpoint."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from tests.kit.waiting import eventually
from tests.spark.programs.killed_streams import program
from tests.spark.programs.own_program import ROOT, command, last_lines
from tests.spark.streams.until_now import TIMEOUT_S, run, send

from odradek.client import Admin, Producer
from odradek.streams import Streams


def test_state_and_position_come_back_without_the_checkpoint(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """Two operators with state in a row, and between them a filter, a function in Python, and a table that is grouped again."""
    orders, users, cities = (new_topic() for _ in range(3))
    shouted = sf.udf(
        lambda city: city.upper(), "STRING"
    )  # fails for None: a row that carries state looks like a record
    app = Streams(f"back-{orders.name}", servers=servers, spark=spark, partitions=2)
    table = app.table(users.name, key="STRING", value="city STRING")
    stream = app.stream(orders.name, key="STRING", value="amount DOUBLE")
    bought = stream.join(table, name="with-city").select(shouted("city").alias("city"), "amount")
    bought.filter("amount > 0").group_by("city").agg("sum(amount) AS sum", name="by-city").to(
        cities.name, name="cities"
    )

    def users_are(*records: tuple[str, str | None, int]) -> None:
        send(servers, users, *((key, city and f'{{"city": "{city}"}}', when) for key, city, when in records))

    def orders_are(*records: tuple[str, int, int]) -> None:
        send(servers, orders, *((key, f'{{"amount": {amount}}}', when) for key, amount, when in records))

    users_are(("a", "Ulm", 1), ("b", "Ulm", 2), ("c", "Bonn", 3))
    orders_are(("a", 2, 10), ("b", 3, 20), ("a", -1, 21), ("d", 9, 22))
    run(app, tmp_path / "one")
    shutil.rmtree(tmp_path / "one")
    users_are(("b", "Bonn", 25), ("c", None, 26))
    orders_are(("a", 5, 30), ("b", 7, 40), ("c", 8, 41))
    run(app, tmp_path / "two")
    orders_are(("b", 1, 50))
    run(app, tmp_path / "two")  # the checkpoint goes on from what was restored
    shutil.rmtree(tmp_path / "two")
    orders_are(("a", 4, 60), ("c", 8, 61))
    run(app, tmp_path / "three")

    written = [(row["key"], row["value"]) for row in consume(cities)]
    assert [value for key, value in written if key == b"ULM"] == [
        b'{"sum":5.0}',
        b'{"sum":10.0}',
        b'{"sum":14.0}',
    ]
    assert [value for key, value in written if key == b"BONN"] == [b'{"sum":7.0}', b'{"sum":8.0}']
    with Admin(servers) as admin:
        topics = [name for name in admin.list_topics() if name.startswith(f"back-{orders.name}")]
    assert sorted(topics) == [
        f"back-{orders.name}.cities-{name}-changelog" for name in ("by-city", "with-city")
    ]


def test_a_program_that_is_killed_under_load_goes_on_without_its_checkpoint(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Any],
    consume: Callable[..., list[dict[str, Any]]],
    tmp_path: Path,
) -> None:
    """Every update is there, once, in order: as if one batch had read all."""
    orders, users, counts = (new_topic() for _ in range(3))
    terms = {
        "servers": servers,
        "orders": orders.name,
        "users": users.name,
        "counts": counts.name,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    cities = ["Ulm", "Bonn", "Trier"]
    send(servers, users, *((f"u{user}", f'{{"city": "{cities[user % 3]}"}}', 0) for user in range(30)))
    sent: list[tuple[str, int]] = []
    enough = threading.Event()

    def load() -> None:
        draw = random.Random(7)
        with Producer(servers, linger_ms=5) as producer:
            while not enough.is_set():
                user, amount = draw.randrange(30), draw.randrange(100)
                producer.send(
                    orders.name, b'{"amount": %d}' % amount, key=b"u%d" % user, timestamp_ms=len(sent) + 1
                )
                sent.append((cities[user % 3], amount))
                time.sleep(0.005)

    loading = threading.Thread(target=load)
    words = command("tests.spark.programs.killed_streams", terms)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True) as killed,
    ):
        try:
            assert killed.stdout is not None
            jvm = int(killed.stdout.readline())
            loading.start()
            eventually(
                lambda: len(consume(counts, committed=True)) >= 80,
                lambda: last_lines((tmp_path / "log").read_text()),
                seconds=TIMEOUT_S,
            )
            os.kill(jvm, signal.SIGKILL)
        finally:
            killed.kill()
            enough.set()
    loading.join()
    shutil.rmtree(tmp_path / "checkpoint")
    run(program(terms, spark, orders_a_batch=100_000), tmp_path / "another")

    written: dict[bytes, list[dict[str, int]]] = defaultdict(list)
    for row in consume(counts, committed=True):
        written[row["key"]].append(json.loads(row["value"]))
    assert len(sent) > 80
    assert written == updates(sent)


def updates(sent: list[tuple[str, int]]) -> dict[bytes, list[dict[str, int]]]:
    """Of each city: how many orders there are, and what they amount to, after each of them."""
    counted: dict[bytes, list[dict[str, int]]] = defaultdict(list)
    for city, amount in sent:
        before = counted[city.encode()][-1:] or [{"n": 0, "sum": 0}]
        counted[city.encode()].append({"n": before[0]["n"] + 1, "sum": before[0]["sum"] + amount})
    return counted
