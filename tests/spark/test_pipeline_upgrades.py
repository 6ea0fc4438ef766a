"""Upgrades under load: a supervisor, Spark, a broker. Counts of each key say whether a record was lost or doubled."""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit import waiting
from tests.spark.conftest import Rows, Topic
from tests.spark.pipelines_in_threads import PATIENCE_S, Program, SupervisorThread

from odradek.client import Producer
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outlining import outline_of_streams
from odradek.pipelines.status import Phase
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.upgrade import UpgradeMode
from odradek.pipelines.upgrading import NextProgram, preview, upgrade
from odradek.streams import Streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

eventually = partial(waiting.eventually, seconds=PATIENCE_S, every_s=0.5)


KEYS = 5
PAUSE_S = 0.05


class Load:
    """Records to topics, one after the other, until `with` ends. `sent` counts them by topic and key."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self.topics: list[str] = []
        self.sent: dict[str, Counter[str]] = defaultdict(Counter)
        self._ending = threading.Event()

    @contextmanager
    def running(self, *topics: str) -> Iterator[None]:
        self.topics = list(topics)
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join()

    def _send(self) -> None:
        with Producer(self._servers) as producer:
            number = 0
            while not self._ending.wait(PAUSE_S):
                for topic in self.topics:
                    key = f"k{number % KEYS}"
                    producer.send(topic, b"1", key=key.encode())
                    self.sent[topic][key] += 1
                number += 1

    def total(self) -> Counter[str]:
        return sum(self.sent.values(), Counter())


def counting(servers: str, name: str, target: str, *sources: str, names: str | None = None) -> Program:
    """Counts the records of each key in all of its sources. With `names` an operator more has state before that."""

    def program(spark: SparkSession | None) -> Streams:
        app = Streams(name, servers=servers, emit="every", spark=spark)
        first, *others = (app.stream(source, key="STRING", value="BIGINT") for source in sources)
        merged = first.merge(*others) if others else first
        if names is not None:
            table = app.table(names, key="STRING", value="name STRING")
            merged = merged.join(table, how="left", name="named")
        amounts = merged.select("value AS amount")
        amounts.group_by_key().agg("count(*) AS n", "max(amount) AS most", name="counts").to(
            target, name="out"
        )
        return app

    return program


def counts(rows: Rows) -> dict[str, list[int]]:
    """What was said of each key, in order."""
    said: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        said[row["key"].decode()].append(json.loads(row["value"])["n"])
    return said


class Upgraded:
    """A pipeline whose programs follow one another."""

    def __init__(self, store: PipelineStore, name: str, programs: Mapping[str, Program]) -> None:
        self._store, self._name, self._programs = store, name, programs
        first = PipelineVersion(number=1, program="one.py", checkpoint=f"{name}/v1")
        store.change(name, lambda before: PipelineDocument(name=name, revision=1, versions=(first,)))

    def follows(self, file: str, mode: UpgradeMode) -> None:
        """The next version, with what its dry run says."""
        outline = outline_of_streams(self._programs[file](None).program)
        program = NextProgram(file=file, args=(), outline=outline, continued=outline)
        verdicts = {
            verdict.mode: verdict
            for verdict in preview(self._store, self._store.document(self._name), program)
        }
        assert verdicts[mode].is_possible, verdicts[mode]
        upgrade(self._store, self._name, program, mode, by="ann", now_ms=0, swap_lag=1_000)

    def runs(self, number: int) -> bool:
        """And nothing of the versions before."""
        statuses = self._store.statuses()
        status = statuses.get(self._name)
        if status is None or any(key.startswith(f"{self._name}~") for key in statuses):
            return False
        assert status.failure is None, status.failure
        return (status.phase, status.version) == (Phase.RUNNING, number)


def test_versions_follow_one_another_under_load_and_nothing_is_lost_or_doubled(
    spark: SparkSession,
    servers: str,
    new_topic: Callable[..., Topic],
    consume: Callable[..., Rows],
    tmp_path: Path,
) -> None:
    """Version 1 reads one topic. 2 keeps its checkpoint and reads another one before it. 3 carries its state to a new
    checkpoint, and has one operator more before it. 4 reads all again beside it.
    """
    orders, more, names, totals = (new_topic() for _ in range(4))
    name = totals.name
    programs = {
        "one.py": counting(servers, name, totals.name, orders.name),
        "two.py": counting(servers, name, totals.name, more.name, orders.name),
        "three.py": counting(servers, name, totals.name, more.name, orders.name, names=names.name),
    }
    names.send(b'{"name": "Ann"}', key=b"k1")
    load = Load(servers)

    def said(topic: Topic) -> dict[str, list[int]]:
        return counts(consume(topic, committed=True))

    def has_all(topic: Topic) -> bool:
        return {key: numbers[-1] for key, numbers in said(topic).items()} == load.total()

    with PipelineStore(servers) as store, load.running(orders.name):
        pipeline = Upgraded(store, name, programs)
        with SupervisorThread(servers, tmp_path, spark, programs):
            eventually(lambda: pipeline.runs(1) and said(totals), "version 1 counts")
            load.topics = [orders.name, more.name]
            pipeline.follows("two.py", UpgradeMode.KEEP)
            eventually(lambda: pipeline.runs(2), "version 2 runs")
            pipeline.follows("three.py", UpgradeMode.CARRY)
            eventually(lambda: pipeline.runs(3), "version 3 runs")
            before = sum(map(len, said(totals).values()))
            eventually(lambda: sum(map(len, said(totals).values())) > before, "version 3 counts")
            load.topics = []
            eventually(lambda: has_all(totals), "version 3 has read everything")
            load.topics = [orders.name, more.name]
            pipeline.follows("two.py", UpgradeMode.REBUILD)
            eventually(lambda: store.document(name).current.number == 4, "version 4 takes over")
            load.topics = []
            rebuilt = Topic(f"{totals.name}.v4", servers)
            eventually(lambda: has_all(rebuilt) and pipeline.runs(4), "version 4 has read everything")
        store.change(name, lambda before: None)

    sent = load.total()
    for topic in (totals, rebuilt):
        for key, numbers in said(topic).items():
            assert numbers == list(range(1, len(numbers) + 1)), (
                "a version went on where the one before stopped"
            )
            assert len(numbers) <= sent[key]
