"""Runs cases against a SQL server on a broker, as users do: over REST, with queries in the server's engine.

Many cases run at once, so the sources and topics of each have names of its own. A record goes in when all that went in
before it has been read, so that queries write the same updates as in the test driver, which reads records singly.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from tests.sql.case_files import Case
from tests.sql.case_names import renamed
from tests.sql.case_runner import CaseBytes, RawRecord, planned

from odradek.client import LATEST, Admin, Consumer, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.spark.exactly_once.checkpoint import batch_input
from odradek.sql.language.rewriting import quoted
from odradek.sql.queries.sleeping import SleepTerms
from odradek.sql.rest_client import RestClient, ServerRefusal
from odradek.sql.server.application import application
from odradek.sql.server.checkpoints import QueryCheckpoints
from odradek.sql.server.cluster import ending_statements
from odradek.sql.server.connections import SqlConnections
from odradek.sql.server.gate import LOOPBACK, GateLimits
from odradek.sql.server.serving import HttpTerms, listening, serve_http
from odradek.sql.server.sql_server import ServerTerms, SqlServer
from odradek.sql.server.topics.processing_log import ProcessingLogTerms

SERVICE: Final = "cases"
STREAM_NAME: Final = "KSQL_PROCESSING_LOG"
EARLIEST: Final = {"auto.offset.reset": "earliest"}
PATIENCE_S: Final = 240
"""It is waited at most so long for the next step of any query, and for a call of the server."""
_OF_THE_MACHINE: Final = ("Python worker failed to connect back", "Python worker exited unexpectedly")
"""Failures of a machine that has too much to do, or too little memory: the server starts the query again, and what it writes is
compared all the same.
"""
_READ_COMMITTED: Final = 1
_AWAKE: Final = SleepTerms(awake_count_max=1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseServer:
    """A server, and what is looked at beside it."""

    servers: str
    directory: Path
    sql: SqlServer
    client: RestClient
    numbers: Iterator[int] = field(default_factory=count)
    """The numbers in the names of cases that run: each is used once, so that no topic is made again while it is deleted."""

    def refusal_of(self, case: Case) -> ServerRefusal | None:
        """What the server says of a case, after which the server is empty again. None: it accepts the statements."""
        try:
            self.client.execute(case.statements, properties=EARLIEST)
        except ServerRefusal as refusal:
            return refusal
        finally:
            self.empty()
        return None

    def empty(self, deleted: Sequence[str] = ()) -> None:
        """Ends all queries, and drops all that statements made. `deleted`: topics of queries that are deleted, too."""
        catalog = self.sql.catalog.without_source(STREAM_NAME)
        statements = [
            *ending_statements(catalog, list(deleted)),
            *(f"DROP FUNCTION {quoted(name)};" for name in catalog.created_functions),
            *(f"DROP TYPE {quoted(name)};" for name in catalog.types),
        ]
        if statements:
            self.client.execute("\n".join(statements))

    def left_out(self, topic: str) -> list[tuple[int, str, str]]:
        """The entries of the processing log about the records of a topic: offset, logger and cause."""
        entries = []
        with self.client.query(f"SELECT logger, message FROM {STREAM_NAME};") as rows:
            for logger, message in filter(None, rows):
                error = message["DESERIALIZATIONERROR"]
                if error["topic"] == topic:
                    entries.append((error["offset"], logger, " ".join(error["CAUSE"])))
        return sorted(set(entries))  # a batch that is tried again writes its entries again

    def run(self, cases: Sequence[Case]) -> list[ServedCase]:
        """Runs cases side by side."""
        served = [ServedCase.of(case, next(self.numbers)) for case in cases]
        with Admin(self.servers) as admin, Producer(self.servers) as producer:
            admin.create_topics(
                [NewTopic(topic, 1, 1) for running in served for topic in running.source_topics]
            )
            for running in served:
                self.client.execute(running.statements, properties=EARLIEST)
                running.query_ids = self._query_ids(running)
            for step in range(max(len(running.as_bytes.records) for running in served)):
                for running in served:
                    running.send(producer, step)
                producer.flush()
                self._wait(admin, served)
            for running in served:
                running.read(self.servers)
            self.empty([".*"])
        return served

    def _wait(self, admin: Admin, served: Sequence[ServedCase]) -> None:
        """Waits until all queries have read their topics, as long as one of them gets on. The checkpoints are looked at
        first: what a query writes later is then seen in its topic.
        """
        topics = sorted({topic for running in served for reads in running.reads for topic in reads})
        wanted = {TopicPartition(topic, 0): LATEST for topic in topics}
        read_before: set[tuple[str, str, int]] | None = None
        while True:
            read = {place for running in served for place in self._read_places(running)}
            if read != read_before:
                read_before, deadline = read, time.monotonic() + PATIENCE_S
            ends = admin.list_offsets(wanted, isolation=_READ_COMMITTED)
            missing = [
                (query_id, topic, ends[TopicPartition(topic, 0)].offset)
                for running in served
                for query_id, topics in zip(running.query_ids, running.reads, strict=True)
                for topic in topics
                if ends[TopicPartition(topic, 0)].offset
                and (query_id, topic, ends[TopicPartition(topic, 0)].offset) not in read
            ]
            if not missing:
                return
            self._check_queries()
            assert time.monotonic() < deadline, f"not read: {missing}; failures: {self._failures()}"
            time.sleep(0.1)

    def _query_ids(self, running: ServedCase) -> tuple[str, ...]:
        """The queries of a case in the order of its statements."""
        names = {name + running.suffix for name in running.names}
        queries = self.sql.catalog.queries.values()
        return tuple(query.id for query in queries if query.sink in names)

    def _read_places(self, running: ServedCase) -> Iterator[tuple[str, str, int]]:
        for query_id in running.query_ids:
            checkpoint_directory = QueryCheckpoints(self.directory / SERVICE).directory_of(query_id, None)
            for checkpoint in checkpoint_directory.glob("**/commits"):
                batches = [int(path.name) for path in checkpoint.iterdir() if path.name.isdecimal()]
                if batches:
                    offsets = batch_input(str(checkpoint.parent), max(batches)).next_offsets
                    for place, offset in offsets.items():
                        yield query_id, place.topic, offset

    def _check_queries(self) -> None:
        failed = {
            query_id: reasons
            for query_id, reasons in self._failures().items()
            if not all(any(text in reason for text in _OF_THE_MACHINE) for reason in reasons)
        }
        assert not failed, failed

    def _failures(self) -> dict[str, list[str]]:
        wanted = dict(self.sql.engine.wanted)
        return {
            query_id: [failure.reason for failure in list(query.failures)]
            for query_id, query in wanted.items()
            if query.failures
        }


@dataclass(slots=True, kw_only=True)
class ServedCase:
    """A case under names of its own. `reads`: the topics that each query reads."""

    case: Case
    suffix: str
    statements: str
    names: tuple[str, ...]
    as_bytes: CaseBytes
    source_topics: tuple[str, ...]
    reads: tuple[tuple[str, ...], ...]
    query_ids: tuple[str, ...] = ()
    written: list[RawRecord] = field(default_factory=list)

    @classmethod
    def of(cls, case: Case, number: int) -> ServedCase:
        catalog, plans = planned(case)
        suffix = f"_{number}"
        all_topics = {source.topic for source in catalog.sources.values()}
        made = {plan.topic for plan in plans if plan.sink is not None and plan.sink.query_id is not None}
        return cls(
            case=case,
            suffix=suffix,
            statements=renamed(case.statements, catalog.sources, all_topics, suffix),
            names=tuple(catalog.sources),
            as_bytes=CaseBytes.of(case, catalog, plans),
            source_topics=tuple(sorted(topic + suffix for topic in all_topics - made)),
            reads=tuple(tuple(sorted({source.topic + suffix for source in plan.sources})) for plan in plans),
        )

    def send(self, producer: Producer, step: int) -> None:
        if step < len(self.as_bytes.records):
            record = self.as_bytes.records[step]
            producer.send(
                record.topic + self.suffix,
                record.value,
                key=record.key,
                partition=0,
                timestamp_ms=record.timestamp,
                headers=list(record.headers),
            )

    def read(self, servers: str) -> None:
        """What the topics of the queries hold."""
        with Consumer(servers, isolation_level="read_committed", key_deserializer=None) as consumer:
            for topic in self.as_bytes.topics:
                place = TopicPartition(topic + self.suffix, 0)
                consumer.assign([place])
                consumer.seek_to_beginning()
                (end,) = consumer.end_offsets([place]).values()
                while consumer.position(place) < end:
                    self.written += [
                        RawRecord(
                            topic=topic, key=record.key, value=record.value, timestamp=record.timestamp_ms
                        )
                        for record in consumer.poll(1.0)
                    ]


@contextmanager
def case_server(servers: str, directory: Path, *, runs_queries: bool) -> Iterator[CaseServer]:
    """`runs_queries` False: the server checks and keeps statements, and starts no engine."""
    loop, ended, has_begun = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    ready: list[tuple[SqlServer, str]] = []

    async def serve() -> None:
        terms = ServerTerms(
            servers=servers,
            directory=directory,
            service_id=SERVICE,
            python_functions=True,
            sleep=_AWAKE,
            processing_log=ProcessingLogTerms() if runs_queries else None,
        )
        server, http = SqlServer(terms), HttpTerms(port=0)
        with listening(http) as opened:
            try:
                await server.start()
                if not runs_queries:
                    server.engine.hold()
                connections = SqlConnections()
                app = application(server, None, GateLimits(hosts=LOOPBACK), connections)

                def begin(address: str) -> None:
                    ready.append((server, address))
                    has_begun.set()

                await serve_http(app, http, opened, ended, begin, connections)
            finally:
                await server.close()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(serve())
        finally:
            has_begun.set()
            loop.close()

    thread = threading.Thread(target=run, name="sql-server-of-cases")
    thread.start()
    assert has_begun.wait(PATIENCE_S)
    assert ready, "the server did not start"
    server, address = ready[0]
    try:
        yield CaseServer(
            servers=servers,
            directory=directory,
            sql=server,
            client=RestClient(url=address, timeout_s=PATIENCE_S),
        )
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
