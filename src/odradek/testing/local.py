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
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.model.public import public
from odradek.runtime.real import real_runtime
from odradek.runtime.real_loop import run_on_loop
from odradek.runtime.real_offload import ThreadOffload

if TYPE_CHECKING:
    from odradek.cli.serving import secure as serving_secure
    from odradek.config import jaas
    from odradek.config import sources as config_sources
    from odradek.config.listening import strictness
else:
    serving_secure = lazy("odradek.cli.serving.secure")
    jaas = lazy("odradek.config.jaas")
    config_sources = lazy("odradek.config.sources")
    strictness = lazy("odradek.config.listening.strictness")

_START_SECONDS = 60.0
_STOP_SECONDS = 60.0


@public("odradek.testing")
class LocalBroker:
    """A context manager, which may be entered again. `settings` are Kafka's broker settings; `data` keeps the data
    between uses. `secure`: TLS, logins by SCRAM, and ACLs; `client_settings` log in as its super user.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data: Path | None = None,
        secure: bool = False,
    ) -> None:
        self._settings = dict(settings or {})
        self._is_secure = secure
        self.client_settings: dict[str, str] = {}
        """The settings that clients need in addition to the address, by Kafka's names (and librdkafka's);
        empty in plain text."""
        self._data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._running: _Running | None = None
        self.address = ""
        """HOST:PORT, for `bootstrap.servers`."""

    def start(self) -> Self:
        """Returns once the broker accepts connections; raises what kept it from starting, and leaves nothing then."""
        if self._running is not None:
            raise OdradekError(f"this broker already runs, on {self.address}")
        try:
            directory = self._directory()
            values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
            if self._is_secure:
                secured = self._secured(Path(directory) / "secure")
                values |= secured
                said = strictness.SourceSettings(name="secure=True", values=secured)
                strictness.check_not_weaker([said], {**values, **self._settings})
            config, _ = load_broker_config({**values, **self._settings})
            self._running = _Running(config)
            self.address = self._running.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def _directory(self) -> str:
        if self._data is not None:
            return str(self._data)
        self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
        return self._temporary.name

    def _secured(self, place: Path) -> Mapping[str, str]:
        source = serving_secure.secure_source(str(place), "127.0.0.1:0", is_quiet=True)
        client = config_sources.from_file(str(place / "client.properties")).values
        login = jaas.parse_jaas(client["sasl.jaas.config"]).options
        self.client_settings = {
            "security.protocol": client["security.protocol"],
            "sasl.mechanism": client["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": client["ssl.truststore.location"],
        }
        return source.values

    def stop(self) -> None:
        """Stop cleanly and remove the temporary data; raises what went wrong meanwhile. Idempotent."""
        running, self._running = self._running, None
        try:
            if running is not None:
                running.stop()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()
                self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class _Running:
    """One broker in a thread of its own, from its creation to its `stop`."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._ready = threading.Event()
        self._address = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        # stored-error: raised once, by `_raise_failure`, with the traceback of the thread
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="odradek-broker", daemon=True)
        self._thread.start()

    def wait_until_ready(self) -> str:
        if not self._ready.wait(_START_SECONDS):
            raise OdradekError(f"the broker did not start within {_START_SECONDS:.0f} s")
        self._raise_failure()
        return self._address

    def stop(self) -> None:
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # its loop is closed: it has stopped already
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            raise OdradekError(f"the broker did not stop within {_STOP_SECONDS:.0f} s")
        self._raise_failure()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            self._thread.join(_STOP_SECONDS)
            raise failure

    def _run(self) -> None:
        try:
            run_on_loop(self._serve(), self._config.server.odradek_event_loop)
        except BaseException as error:  # noqa: BLE001 - the root of the thread: its waiter raises it again
            self._failure = error  # stored-error: as above
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        runtime = real_runtime(threads=self._config.server.num_io_threads)
        broker = Broker(self._config, runtime)
        try:
            await broker.start()
            self._address = broker.address
            self._ready.set()
            await self._stopping.wait()
        finally:
            await broker.stop()
            if isinstance(runtime.offload, ThreadOffload):
                runtime.offload.close()
            if runtime.file_syncs is not None:
                runtime.file_syncs.close()
