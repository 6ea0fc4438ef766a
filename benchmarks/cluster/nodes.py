"""Three brokers as one cluster, Odradek's or Apache Kafka's, with one face: started, killed and revived one by one."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from benchmarks.contenders import DURABLE, PAGE_CACHE, PEER
from benchmarks.peer import KafkaNode
from benchmarks.peer.fetch import PeerJars
from benchmarks.peer.node import free_ports
from odradek.cli.serving.broker_processes import Fleet

BROKERS: Final = (1, 2, 3)
_SHARED_SETTINGS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "share.coordinator.state.topic.replication.factor": "3",
    "auto.create.topics.enable": "false",
}
"""On both sides; all else is each one's default."""


class Cluster(Protocol):
    """Three brokers with the ids 1 to 3. Addresses stay the same for as long as it exists."""

    @property
    def bootstrap(self) -> str: ...
    def address(self, broker: int) -> tuple[str, int]: ...
    def pids(self) -> list[int]:
        """Returns the process ids of the brokers that run."""

    def missing(self) -> list[int]:
        """Returns the ids of the brokers that do not run."""

    def start(self) -> None:
        """Start all side by side and wait until each says that it serves."""

    def launch(self, broker: int) -> None:
        """Start one, which ran before, and return at once."""

    def wait_until_ready(self, broker: int) -> None: ...
    def kill(self, broker: int) -> None:
        """SIGKILL."""

    def terminate(self, broker: int) -> None:
        """SIGTERM, and wait until it has ended."""

    def stop(self) -> None:
        """End all of them. Idempotent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContender:
    """A cluster in one setting; `make` builds it on a directory with a session timeout in milliseconds."""

    key: str
    make: Callable[[Path, int], Cluster] = field(compare=False)


def cluster_contenders(jars: PeerJars | None) -> dict[str, ClusterContender]:
    """Returns the clusters by the keys of the contenders with one broker."""
    contenders = [
        ClusterContender(key=DURABLE, make=lambda directory, ms: OdradekCluster(directory, ms)),
        ClusterContender(
            key=PAGE_CACHE,
            make=lambda directory, ms: OdradekCluster(directory, ms, {"log.flush.before.ack": "false"}),
        ),
    ]
    if jars is not None:
        contenders.insert(
            0, ClusterContender(key=PEER, make=lambda directory, ms: KafkaCluster(jars, directory, ms))
        )
    return {contender.key: contender for contender in contenders}


class OdradekCluster:
    """Processes that share a registry in a directory, three unless `brokers` has another number."""

    def __init__(
        self,
        directory: Path,
        session_timeout_ms: int,
        settings: Mapping[str, str] | None = None,
        *,
        brokers: int = len(BROKERS),
    ) -> None:
        settings = {
            **_SHARED_SETTINGS,
            "broker.session.timeout.ms": str(session_timeout_ms),
            **(settings or {}),
        }
        self._fleet = Fleet.plan(brokers, directory, settings=settings)

    @property
    def bootstrap(self) -> str:
        return self._fleet.bootstrap

    def address(self, broker: int) -> tuple[str, int]:
        host, _, port = self._fleet.broker(broker).address.rpartition(":")
        return host, int(port)

    def pids(self) -> list[int]:
        return [broker.pid for broker in self._fleet.brokers if broker.pid is not None]

    def missing(self) -> list[int]:
        return [broker.node_id for broker in self._fleet.brokers if not broker.is_alive]

    def start(self) -> None:
        self._fleet.start()

    def launch(self, broker: int) -> None:
        self._fleet.broker(broker).start()

    def wait_until_ready(self, broker: int) -> None:
        self._fleet.broker(broker).wait_until_ready()

    def kill(self, broker: int) -> None:
        self._fleet.broker(broker).kill()

    def terminate(self, broker: int) -> None:
        self._fleet.broker(broker).stop()

    def stop(self) -> None:
        self._fleet.stop()


class KafkaCluster:
    """Three nodes that are broker and controller each, so that a controller can die as well."""

    def __init__(self, jars: PeerJars, directory: Path, session_timeout_ms: int) -> None:
        ports = free_ports(2 * len(BROKERS))
        brokers, controllers = ports[: len(BROKERS)], ports[len(BROKERS) :]
        voters = ",".join(
            f"{number}@127.0.0.1:{port}" for number, port in zip(BROKERS, controllers, strict=True)
        )
        cluster_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a", 1)
        self._running: set[int] = set()
        self._nodes = {
            number: KafkaNode(
                jars,
                directory=directory / f"node-{number}",
                ports=(port, controller_port),
                cluster_id=cluster_id,
                settings={
                    **_SHARED_SETTINGS,
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "broker.session.timeout.ms": str(session_timeout_ms),
                },
            )
            for number, port, controller_port in zip(BROKERS, brokers, controllers, strict=True)
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes.values())

    def address(self, broker: int) -> tuple[str, int]:
        host, _, port = self._nodes[broker].bootstrap.rpartition(":")
        return host, int(port)

    def pids(self) -> list[int]:
        return [self._nodes[number].pid for number in sorted(self._running)]

    def missing(self) -> list[int]:
        return [number for number in BROKERS if number not in self._running]

    def start(self) -> None:
        try:
            for node in self._nodes.values():
                node.prepare()
            for broker in BROKERS:
                self.launch(broker)
            for broker in BROKERS:
                self.wait_until_ready(broker)
        except BaseException:
            self.stop()
            raise

    def launch(self, broker: int) -> None:
        self._nodes[broker].launch()
        self._running.add(broker)

    def wait_until_ready(self, broker: int) -> None:
        self._nodes[broker].wait_until_ready()

    def kill(self, broker: int) -> None:
        self._nodes[broker].kill()
        self._running.discard(broker)

    def terminate(self, broker: int) -> None:
        self._nodes[broker].terminate()
        self._running.discard(broker)

    def stop(self) -> None:
        """By SIGKILL: the last controllers would wait for a quorum that is gone, and the data is not needed any more."""
        for node in self._nodes.values():
            node.kill()
        self._running.clear()
