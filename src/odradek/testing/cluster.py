"""Several real brokers inside a test: processes on this machine, one cluster, a directory that goes away.

from odradek.testing import Cluster

with Cluster(brokers=3) as cluster:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.address, "acks": "all"})
    cluster.broker(1).kill()
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.model.errors import OdradekError
from odradek.model.public import public


@public("odradek.testing")
class Cluster:
    """A context manager, which may be entered again. `settings` are Kafka's broker settings, for all brokers; `data` keeps
    the data (and the brokers' logs) between uses.

    Topics and internal topics get as many replicas as there are brokers, up to three, unless the settings
    override it.
    """

    def __init__(
        self, brokers: int = 3, settings: Mapping[str, str] | None = None, *, data: Path | None = None
    ) -> None:
        if brokers < 1:
            raise OdradekError(f"a cluster has at least 1 broker, not {brokers}")
        self._count = brokers
        copies = str(min(brokers, 3))
        self._settings = {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "share.coordinator.state.topic.replication.factor": copies,
            "group.initial.rebalance.delay.ms": "0",
            **(settings or {}),
        }
        self._data = data
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._fleet: Fleet | None = None

    def start(self) -> Self:
        """Returns once every broker accepts connections; raises what kept one from it, and leaves nothing then."""
        if self._fleet is not None:
            raise OdradekError(f"this cluster already runs, on {self.address}")
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
        directory = self._data or Path(self._temporary.name if self._temporary else "")
        try:
            self._fleet = Fleet.plan(self._count, directory, settings=self._settings).start()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def address(self) -> str:
        """HOST:PORT of every broker, for `bootstrap.servers`."""
        return self._running().bootstrap

    @property
    def brokers(self) -> list[BrokerProcess]:
        """The brokers in the order of their ids, 1 and up: each can be killed, paused, resumed, stopped and started again."""
        return self._running().brokers

    def broker(self, node_id: int) -> BrokerProcess:
        """Returns the broker with this id, 1 and up."""
        return self._running().broker(node_id)

    def stop(self) -> None:
        """Stop all brokers cleanly and remove the temporary data. Idempotent."""
        fleet, self._fleet = self._fleet, None
        try:
            if fleet is not None:
                fleet.stop()
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

    def _running(self) -> Fleet:
        if self._fleet is None:
            raise OdradekError("this cluster does not run: use `with Cluster(...)`, or start()")
        return self._fleet
