"""The server holds its parts, and none of them holds the server: calls go one way."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from odradek.sql.server.sql_server import ServerTerms, SqlServer


async def test_no_part_refers_to_the_server(tmp_path: Path) -> None:
    server = SqlServer(ServerTerms(servers="127.0.0.1:1", directory=tmp_path), "127.0.0.1:8088")
    parts = (
        server.engine,
        server.commands,
        server.topics,
        server.views,
        server.producer,
        server.processing_log,
        server.schemas,
        server.threads,
        server.state,
    )
    freed = weakref.ref(server)
    gc.disable()
    try:
        del server
        assert freed() is None, [type(holder) for holder in gc.get_referrers(freed())]
    finally:
        gc.enable()
    _, _, _, _, producer, _, _, threads, _ = parts
    await producer.close()
    threads.close()
