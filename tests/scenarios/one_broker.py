"""A production broker on the test's own event loop, and the connections of a test to it."""

import ssl
from pathlib import Path

from tests.kit.wire import Wire

from odradek.broker.app import Broker
from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.runtime.real import real_runtime


class Scene:
    """Brokers and connections of one test; all of them are gone when it ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker: Broker | None = None
        self._wires: list[Wire] = []

    async def start(self, **settings: str) -> Broker:
        """A broker on this scene's data; settings with underscores for dots."""
        values = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(self.directory / "data")}
        values |= {key.replace("_", "."): value for key, value in settings.items()}
        config, _ = load_broker_config(values)
        self.runtime = real_runtime()
        self.broker = self.new_broker(config)
        await self.broker.start()
        return self.broker

    def new_broker(self, config: BrokerConfig) -> Broker:
        return Broker(config, self.runtime)

    async def connect(self, port: int | None = None, tls: ssl.SSLContext | None = None) -> Wire:
        """Connects to the broker's first listener, or to the one at a port."""
        assert self.broker is not None
        wire = await Wire.connect(self.broker.port if port is None else port, tls)
        self._wires.append(wire)
        return wire

    def forget(self, wire: Wire) -> None:
        """It is closed already."""
        self._wires.remove(wire)

    async def stop(self) -> None:
        for wire in self._wires:
            await wire.close()
        self._wires.clear()
        if self.broker is not None:
            await self.broker.stop()
            self.broker = None
            self.runtime.offload.close()  # type: ignore[attr-defined]
            if self.runtime.file_syncs is not None:
                self.runtime.file_syncs.close()
