"""A real broker inside a test: its own thread, its own event loop, a free port, a directory that goes away.

from odradek.testing import LocalBroker

with LocalBroker() as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.model.errors import OdradekError
from odradek.runtime.real import ThreadOffload, real_runtime

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


class LocalBroker:
    """A context manager. `settings` are Kafka's broker settings; `data` keeps the data between uses."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, data: Path | None = None) -> None:
        self._settings = dict(settings or {})
        self._data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.address = ""
        """HOST:PORT, for `bootstrap.servers`."""

    def start(self) -> Self:
        """Returns once the broker accepts connections; raises what kept it from starting."""
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
        data = str(self._data or (self._temporary.name if self._temporary else ""))
        values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": data, **self._settings}
        config, _ = BrokerConfig.load(values)
        self._thread = threading.Thread(target=self._run, args=(config,), name="odradek-broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise OdradekError(f"the broker did not start within {_START_SECONDS:.0f} s")
        if self._failure is not None:
            self.stop()
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop cleanly and remove the temporary data. Idempotent."""
        if self._loop is not None and self._stopping is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
            if self._thread.is_alive():
                raise OdradekError(f"the broker did not stop within {_STOP_SECONDS:.0f} s")
            self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self, config: BrokerConfig) -> None:
        try:
            asyncio.run(self._serve(config))
        except BaseException as error:  # noqa: BLE001 - the root of the thread: `start` raises it again
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, config: BrokerConfig) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        runtime = real_runtime(threads=config.num_io_threads)
        broker = Broker(config, runtime)
        try:
            await broker.start()
            self.address = broker.address
            self._ready.set()
            await self._stopping.wait()
        finally:
            await broker.stop()
            if isinstance(runtime.offload, ThreadOffload):
                runtime.offload.close()
