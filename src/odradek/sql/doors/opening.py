"""The server's side of the doors: their process, started with the server, and started again when it dies."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from odradek.model.errors import ConfigError
from odradek.spark.engine.java import find_java
from odradek.sql.doors.messages import DoorsFailed, DoorsOpen, OpenDoors, ShowSources
from odradek.sql.metastore.catalog import Source
from odradek.sql.queries.channel import framed, read_message
from odradek.telemetry import events

_log = events.get("sql")
LOOPBACK: Final = "127.0.0.1"
_BACK_OFF_FIRST_S: Final = 1.0
_BACK_OFF_MAX_S: Final = 60.0
_STOP_S: Final = 10.0
_PASSED: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "JAVA_HOME",
        "LD_LIBRARY_PATH",
    }
)
_PASSED_PREFIXES: Final = (
    "LC_",
    "XDG_",
    "PYTHON",
    "PYSPARK_",
    "SPARK_",
    "VIRTUAL_ENV",
    "KRB5",
    "SSL_CERT_",
    "COVERAGE_",
)


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that Java, Python, Spark and Kerberos need. Others may hold passwords, which the
    process does not need.
    """
    return {
        name: value for name, value in ours.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorTerms:
    """The ports of the doors on 127.0.0.1: of Spark Connect, and of Thrift for JDBC. None: no such door; 0: any port."""

    connect: int | None = None
    jdbc: int | None = None

    def check(self) -> None:
        """Checks that the ports are free, before anything heavy starts. ConfigError."""
        for option, port in (("--connect", self.connect), ("--jdbc", self.jdbc)):
            if port is None:
                continue
            try:
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((LOOPBACK, port))
            except OSError as error:
                raise ConfigError(
                    f"cannot listen on {LOOPBACK}:{port}: {error.strerror or error}: give another {option}"
                ) from error
        problem = find_java().problem
        if problem is not None:
            raise ConfigError(problem)


class SparkDoors:
    """The process of the doors, as the server sees it.

    `start`, then `show` with each change, then `close`; all on one event loop.
    """

    def __init__(
        self,
        terms: DoorTerms,
        servers: str,
        options: Mapping[str, str],
        on_open: Callable[[str], object] = lambda address: None,
    ) -> None:
        """`options`: of `format("odradek")`. `on_open(URL)`: of each door, when it opens for the first time."""
        self._order = OpenDoors(
            connect=terms.connect, jdbc=terms.jdbc, servers=servers, options=options, sources=()
        )
        self._on_open = on_open
        self._was_open = False
        self._writer: asyncio.StreamWriter | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self, sources: tuple[Source, ...]) -> None:
        self._order = replace(self._order, sources=sources)
        self._keeping = asyncio.get_running_loop().create_task(self._keep_open(), name="odradek-sql-doors")

    def show(self, sources: tuple[Source, ...]) -> None:
        """Sends the current sources."""
        if sources == self._order.sources:
            return
        self._order = replace(self._order, sources=sources)
        if self._writer is not None:
            self._writer.write(framed(ShowSources(sources=sources)))

    async def close(self) -> None:
        """Closes the doors. Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None

    async def _keep_open(self) -> None:
        pause_s = _BACK_OFF_FIRST_S
        while True:
            opened = False
            problem = ""
            try:
                async for message in self._life():
                    match message:
                        case DoorsOpen():
                            opened = True
                            self._opened(message)
                        case DoorsFailed():
                            problem = message.problem
            except OSError as error:
                problem = str(error)
            pause_s = _BACK_OFF_FIRST_S if opened else min(_BACK_OFF_MAX_S, pause_s * 2)
            _log.warning("sql_doors_ended", reason=problem or "their process died", again_after_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _life(self) -> AsyncIterator[object]:
        """Handles the messages of one process, until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "odradek.sql.doors.doors_process",
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                env={**_environment(os.environ), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the server: it decides
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            writer.write(framed(self._order))
            self._writer = writer
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    yield await read_message(reader)
        finally:
            self._writer = None
            writer.close()
            try:
                async with asyncio.timeout(_STOP_S):
                    await process.wait()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def _opened(self, doors: DoorsOpen) -> None:
        self._order = replace(self._order, connect=doors.connect, jdbc=doors.jdbc)
        addresses = [
            f"{scheme}://{LOOPBACK}:{port}"
            for scheme, port in (("sc", doors.connect), ("jdbc:hive2", doors.jdbc))
            if port is not None
        ]
        _log.info("sql_doors_open", addresses=", ".join(addresses))
        if not self._was_open:
            self._was_open = True
            for address in addresses:
                self._on_open(address)
