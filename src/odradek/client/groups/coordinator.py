"""Which broker coordinates a group or a transactional id, and asking it.

It is looked up when it is needed and dropped after an error of the coordinator or without a response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.client.groups.member import COORDINATOR_MOVED
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.connections import BrokerConnections
from odradek.client.settings.address import Address
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER
from odradek.protocol import Message, api_by_name
from odradek.protocol.decoder import STRING_BYTES_MAX
from odradek.protocol.messages.metadata.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP: Final = 0
TRANSACTION: Final = 1
_FIND: Final = api_by_name("FindCoordinator")
_FIRST_VERSION_WITH_KEYS: Final = 4

Build = Callable[[int], Message]
"""Makes a request for the version that the broker speaks."""


class Coordinator:
    """The coordinator of one key, on one event loop."""

    def __init__(self, cluster: ClusterClient, key: str, key_type: int) -> None:
        self._cluster = cluster
        self._key = key
        self._key_type = key_type
        self._found_at: tuple[int, Address] | None = None
        self._search: asyncio.Task[tuple[int, Address]] | None = None

    def forget(self) -> None:
        """Forgets the coordinator's broker: it has moved, or there is none."""
        self._found_at = None

    def note(self, code: ErrorCode) -> None:
        """Notes the error code of the coordinator's answer."""
        if code in COORDINATOR_MOVED:
            self.forget()

    async def connection(self, links: BrokerConnections | None = None) -> BrokerConnection:
        """Returns a connection to it, among `links` or the cluster's usual ones. One attempt; KafkaError."""
        _, address = self._found_at or await self._find()
        try:
            return await (links or self._cluster.links).get(address)
        except KafkaError:
            self.forget()
            raise

    async def send(
        self,
        api: str,
        build: Build | Message,
        *,
        timeout_s: float,
        at_most: int | None = None,
        links: BrokerConnections | None = None,
    ) -> Any:
        """Sends one request without a retry. Pass the answer's error codes to `note`."""
        connection = await self.connection(links)
        version = connection.version_of(api_by_name(api), at_most=at_most)
        message = build if isinstance(build, Message) else build(version)
        try:
            return await connection.send(message, at_most=at_most, timeout_s=timeout_s)
        except KafkaError as error:
            if error.retriable:
                self.forget()
            raise

    async def broker(self) -> int:
        """Returns the id of the group's coordinator, in the cluster's image. Makes one attempt, and raises KafkaError."""
        broker, _ = self._found_at or await self._find()
        if broker not in self._cluster.image.brokers:
            self._cluster.metadata.request_update()
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {broker} is not in the cluster at present"
            )
        return broker

    async def _find(self) -> tuple[int, Address]:
        """Finds the coordinator: one search at a time, for all that need it."""
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(
                self._look_up(), name="odradek-find-coordinator"
            )
            self._search.add_done_callback(self._found)
        return await asyncio.shield(self._search)

    def _found(self, search: asyncio.Task[tuple[int, Address]]) -> None:
        self._search = None
        if not search.cancelled() and search.exception() is None:
            self._found_at = search.result()

    async def _look_up(self) -> tuple[int, Address]:
        key_bytes = len(self._key.encode(errors="surrogatepass"))
        if (
            key_bytes > STRING_BYTES_MAX
        ):  # a broker drops the connection of such a request, and a retry would go on
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{self._key!r:.80} has {key_bytes} bytes: an id in Kafka has at most {STRING_BYTES_MAX}",
            )
        connection = await self._cluster.connection(NO_BROKER)
        version = connection.version_of(_FIND)
        if version >= _FIRST_VERSION_WITH_KEYS:
            request = FindCoordinatorRequest(key_type=self._key_type, coordinator_keys=[self._key])
        else:
            request = FindCoordinatorRequest(key=self._key, key_type=self._key_type)
        response: FindCoordinatorResponse = await connection.send(request)
        coordinator = response.coordinators[0] if response.coordinators else response
        code = ErrorCode.of(coordinator.error_code)
        if code is not ErrorCode.NONE:
            raise KafkaError(
                code, f"no coordinator for {self._key!r}: {coordinator.error_message or code.meaning}"
            )
        return coordinator.node_id, Address(coordinator.host, coordinator.port)
