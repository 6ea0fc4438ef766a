"""A console with something that flows, for pictures: a stream of flights in a SQL server, and a pipeline that reads it.

There is no Spark: the pipeline's status is written as its supervisor would.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.interop.console.conftest import console_process
from tests.unit.sql.running_server import sql_server

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.pipelines.document import PIPELINES_TOPIC, PipelineDocument, PipelineVersion
from odradek.pipelines.membership import SUPERVISORS_GROUP
from odradek.pipelines.outline import OutputOutline, ProgramKind, ProgramOutline, SourceOutline, StateOutline
from odradek.pipelines.status import STATUS_TOPIC, Phase, PipelineStatus
from odradek.pipelines.store import PipelineStore
from odradek.testing import LocalBroker

FLIGHTS: Final = 12
LIVE_QUERY: Final = "SELECT flight, origin, destination, delay_minutes\nFROM flights\nEMIT CHANGES;"
_MADE: Final = """
CREATE STREAM flights (origin STRING KEY, flight STRING, destination STRING, delay_minutes INT)
    WITH (KAFKA_TOPIC='flights', VALUE_FORMAT='JSON');
"""
_AIRPORTS: Final = ("JFK", "CDG", "IST", "HND", "GRU", "NBO")
_DELAYS: Final = (12, 95, -4, 3, 41, 7, 160, 0, 22, -2, 58, 9)
_TOPICS: Final = (
    "flights",
    "bookings",
    "delays-by-origin",
    "late-flights",
    "totals.delays-by-origin-changelog",
)
_START_MS: Final = 1_764_000_000_000
_STEP_S: Final = 0.5


def _output(name: str, topic: str, sources: tuple[str, ...], states: tuple[str, ...] = ()) -> OutputOutline:
    return OutputOutline(
        name=name,
        topic=topic,
        is_topic=True,
        sources=tuple(SourceOutline(name=source, topic=source) for source in sources),
        states=tuple(StateOutline(name=state, kind="aggregate", shape="") for state in states),
        sources_named=True,
    )


_OUTLINE: Final = ProgramOutline(
    kind=ProgramKind.STREAMS,
    app="totals",
    outputs=(
        _output("late", "late-flights", ("flights",)),
        _output("delays", "delays-by-origin", ("flights", "bookings"), ("by-origin",)),
    ),
)


@contextmanager
def flowing_console() -> Iterator[str]:
    """Yields the address of the console."""
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalBroker() as broker,
        sql_server(broker.address, "pictures", Path(directory)) as sql,
    ):
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic(name, 1) for name in _TOPICS])
        sql.execute(_MADE)
        for number, delay in enumerate(_DELAYS):
            origin, destination = _AIRPORTS[number % 6], _AIRPORTS[(number * 5 + 1) % 6]
            sql.execute(
                f"INSERT INTO flights VALUES ('{origin}', 'TK{100 + number}', '{destination}', {delay});"
            )
        version = PipelineVersion(
            number=3,
            program="/srv/pipelines/totals.py",
            checkpoint="totals/v3",
            made_ms=_START_MS,
            way="carry",
        )
        with PipelineStore(broker.address) as store:
            document = PipelineDocument(name="totals", versions=(version,))
            store.change(
                "totals", lambda _: document.changed(_START_MS, "ann@build", "upgrade to version 3 by carry")
            )
        ended = threading.Event()
        flow = threading.Thread(target=_flow, args=[broker.address, ended])
        flow.start()
        try:
            with console_process("--bootstrap", broker.address, "--sql", sql.url) as address:
                yield address
        finally:
            ended.set()
            flow.join()


def _flow(servers: str, ended: threading.Event) -> None:
    """Writes bookings, and how far the pipeline has read them, as the member that supervises, until the end."""
    reported = PipelineStatus(
        name="totals",
        phase=Phase.RUNNING,
        revision=1,
        version=3,
        since_ms=int(time.time() * 1000) - 7_500_000,
        supervisor="host",
        pid=7,
        batch_ms=412.0,
        outline=_OUTLINE,
        log=("batch 811: 54 rows in 0.41 s", "batch 812: 49 rows in 0.39 s"),
    )
    position = 0
    with (
        Producer(servers) as producer,
        Consumer(servers, group_id=SUPERVISORS_GROUP, client_id="build") as member,
    ):
        member.subscribe([PIPELINES_TOPIC])
        while not ended.is_set():
            member.poll(_STEP_S)
            position += 60
            for _ in range(63):
                producer.send("bookings", b"{}", partition=0)
            for _ in range(4):
                producer.send("delays-by-origin", b"{}", partition=0)
            inputs = {"flights": {0: FLIGHTS}, "bookings": {0: position}}
            status = replace(reported, rows_count=81_200 + position, inputs=inputs)
            producer.send(STATUS_TOPIC, status.to_bytes(), key=b"totals", partition=0)
            producer.flush()
