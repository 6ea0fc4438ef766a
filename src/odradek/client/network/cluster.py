"""A client's view of the cluster as one thing: the image, the connections, and asking the right broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from odradek.client.network.backoff import Backoff
from odradek.client.network.connection import BrokerConnection, BrokerIdentity
from odradek.client.network.connections import BrokerConnections
from odradek.client.network.errors import IllegalStateError, TimedOutError, explain
from odradek.client.network.metadata import Metadata
from odradek.client.network.metadata_snapshot import MetadataSnapshot
from odradek.client.network.metrics import MetricName
from odradek.client.network.metrics_push import MetricsPush
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER
from odradek.protocol import Message
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

_log = events.get("client")

M = TypeVar("M", bound=Message)
T = TypeVar("T")

_TRIES_BEFORE_WARNING: Final = 5
"""A leader or coordinator that moves costs fewer; after these, some 2 s have passed."""


class ClusterClient:
    """A client's access to the cluster: its metadata, its connections, and requests to the right broker. It belongs to the
    event loop on which it is made. Call `start` first, and `close` last."""

    def __init__(
        self, settings: ClientSettings, clock: Clock, entropy: Entropy, *, auto_create: bool = False
    ) -> None:
        self._settings = settings
        self._entropy = entropy
        self.clock: Final = clock
        self.links: Final = BrokerConnections(settings, clock, entropy)
        self.metadata: Final = Metadata(settings, self.links, clock, entropy, auto_create=auto_create)
        self.links.on_trouble = self.metadata.request_update
        self.links.identity = self._identity
        self.backoff: Final = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, entropy)
        self._push: MetricsPush | None = None

    @property
    def image(self) -> MetadataSnapshot:
        return self.metadata.image

    def start(self) -> None:
        self.metadata.start()
        if self._push is not None:
            self._push.start()

    async def close(self) -> None:
        if self._push is not None:
            await self._push.close()
        await self.metadata.close()
        await self.links.close()

    def push_metrics(self, read: Callable[[], Mapping[MetricName, float]], labels: Mapping[str, str]) -> None:
        """Pushes what `read` returns to brokers that ask for it, from `start` on (KIP-714)."""
        self._push = MetricsPush(
            self.links, self.clock, self._entropy, read, connect=self.connection, labels=labels
        )

    def relabel_metrics(self, labels: Mapping[str, str]) -> None:
        """Changes the labels of the metrics that are pushed."""
        if self._push is not None:
            self._push.relabel(labels)

    async def instance_id(self, timeout_s: float) -> str:
        """Returns the id with which brokers show this client's metrics, in Kafka's form."""
        if self._push is None:
            raise IllegalStateError("enable.metrics.push is false: brokers give this client no id")
        return await self._push.instance_id(timeout_s)

    def more_links(self, on_change: Callable[[], None]) -> BrokerConnections:
        """Connections apart from the usual ones, for requests that keep the broker waiting; the caller closes them."""
        links = BrokerConnections(self._settings, self.clock, self._entropy)
        links.on_change = on_change
        links.on_trouble = self.metadata.request_update
        links.identity = self._identity
        return links

    def _identity(self, address: Address) -> BrokerIdentity | None:
        """Returns the broker that the metadata names at an address, if it is the only one."""
        image = self.image
        nodes = [node_id for node_id, known in image.brokers.items() if known == address]
        if image.cluster_id is None or len(nodes) != 1:
            return None
        return BrokerIdentity(image.cluster_id, nodes[0])

    def ready(self, broker: int, links: BrokerConnections | None = None) -> BrokerConnection | None:
        """Returns the connection to a broker if there is one now; if not, one is begun."""
        links = links or self.links
        address = self.image.brokers.get(broker)
        if address is None:
            return None
        connection = links.ready(address)
        if connection is None:
            links.begin(address)
        return connection

    def is_unreachable(self, broker: int, links: BrokerConnections | None = None) -> bool:
        """Returns whether the last attempt to connect to a broker failed."""
        address = self.image.brokers.get(broker)
        return address is not None and (links or self.links).is_unreachable(address)

    async def connection(self, broker: int = NO_BROKER) -> BrokerConnection:
        """Returns a connection to `broker`, or to any reachable broker. Retriable KafkaError when there is
        none."""
        if broker < 0:
            connection = self.links.least_loaded()
            if connection is not None:
                return connection
            await self.metadata.refresh(self._settings.request_timeout_ms / 1000)
            connection = self.links.least_loaded()
            if connection is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker is connected")
            return connection
        address = self.image.brokers.get(broker)
        if address is None:
            self.metadata.request_update()
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"broker {broker} is not in the cluster at present"
            )
        return await self.links.get(address)

    async def send(
        self,
        broker: int,
        request: Message,
        response_type: type[M],
        *,
        timeout_s: float,
        at_most: int | None = None,
    ) -> M:
        """Sends one request without a retry. Both `timeout_s` and request.timeout.ms limit the wait for its answer."""
        connection = await self.connection(broker)
        limit_s = min(timeout_s, self._settings.request_timeout_ms / 1000)
        reply: object = await connection.send(request, at_most=at_most, timeout_s=limit_s)
        assert isinstance(reply, response_type)
        return reply

    async def retrying(self, what: str, timeout_s: float, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Await `attempt(seconds left)` until it succeeds or fails for good; TimedOutError with the last reason.

        Retriable KafkaErrors are tried again after a pause, on fresh metadata.
        """
        deadline = self.clock.monotonic() + timeout_s
        problem: Exception | None = None
        tries = 0
        while True:
            left_s = deadline - self.clock.monotonic()
            if left_s <= 0:
                raise TimedOutError(f"{what} did not succeed within {timeout_s:g} s", problem)
            try:
                async with asyncio.timeout(left_s):
                    return await attempt(left_s)
            except TimeoutError:
                problem = problem or self.metadata.problem
            except KafkaError as error:
                if not error.retriable:
                    raise
                problem = error
                self.metadata.request_update()
                await asyncio.sleep(
                    max(0.0, min(self.backoff.delay_s(tries), deadline - self.clock.monotonic()))
                )
                tries += 1
                if tries == _TRIES_BEFORE_WARNING:
                    _log.warning(
                        "request_is_retried",
                        what=what,
                        code=error.code.name,
                        reason=explain(error),
                        timeout_s=timeout_s,
                    )
