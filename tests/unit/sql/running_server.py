"""A SQL server on a broker, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from odradek.sql.rest_client import RestClient
from odradek.sql.server.gate import HttpUsers
from odradek.sql.server.serving import HttpTerms
from odradek.sql.server.sql_server import ServerTerms, serve
from odradek.sql.server.topics.processing_log import ProcessingLogTerms
from odradek.values.schema_registry import SchemaRegistryTerms


@contextmanager
def sql_server(
    servers: str,
    service_id: str,
    directory: Path,
    *,
    python_functions: bool = False,
    schema_registry: str | None = None,
    settings: Mapping[str, str] | None = None,
    processing_log: ProcessingLogTerms | None = None,
    commands_between_snapshots: int = 500,
    users: HttpUsers | None = None,
) -> Iterator[RestClient]:
    loop, ended, has_begun = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    ready: list[str] = []

    def begin(address: str) -> None:
        ready.append(address)
        has_begun.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        terms = ServerTerms(
            servers=servers,
            directory=directory,
            service_id=service_id,
            settings=settings or {},
            python_functions=python_functions,
            processing_log=processing_log,
            commands_between_snapshots=commands_between_snapshots,
            schema_registry=None if schema_registry is None else SchemaRegistryTerms.of(schema_registry),
        )
        try:
            loop.run_until_complete(serve(terms, HttpTerms(port=0), users, ended, begin))
        finally:
            has_begun.set()
            loop.close()

    thread = threading.Thread(target=run, name="sql-server-of-test")
    thread.start()
    assert has_begun.wait(60)
    assert ready, "the server did not start"
    try:
        yield RestClient(url=ready[0])
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        assert not thread.is_alive()
