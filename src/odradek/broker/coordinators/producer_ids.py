"""Producer ids for idempotent producers, handed out from blocks that the controller reserves in the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from odradek.cluster.image import NO_LEADER, ClusterImage
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, ProducerId
from odradek.model.lazy import lazy
from odradek.runtime.shielded import outcome_of

if TYPE_CHECKING:
    from odradek.broker.cluster.peer_requests import SendToPeer
    from odradek.protocol.messages.cluster import allocate_producer_ids
else:
    allocate_producer_ids = lazy("odradek.protocol.messages.cluster.allocate_producer_ids")

_ALLOCATE_PRODUCER_IDS: Final = 67
_ATTEMPTS_MAX: Final = 5
_AGAIN_SECONDS: Final = 0.05
"""Doubled after each attempt: a controller that was just lost has a successor soon, and then clients come again."""
_RESPONSE_SECONDS_MAX: Final = 5.0


class ProducerIds:
    """Allocates producer ids. Never gives an id twice, not even after a crash: a block is durable before its first id is
    given."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._refilling: asyncio.Task[None] | None = None

    async def next(self) -> ProducerId:
        """Returns the next producer id. An error of the allocation, such as COORDINATOR_LOAD_IN_PROGRESS, is raised for all
        its waiters."""
        while (producer_id := next(self._block, None)) is None:
            if self._refilling is None:
                self._refilling = asyncio.get_running_loop().create_task(self._refill())
                self._refilling.add_done_callback(self._refilled)
            await outcome_of(self._refilling)
        return ProducerId(producer_id)

    async def _refill(self) -> None:
        self._block = iter(await self._allocate_block())

    def _refilled(self, _: asyncio.Task[None]) -> None:
        self._refilling = None

    def close(self) -> None:
        """Cancels the waiters when the broker stops."""
        if self._refilling is not None:
            self._refilling.cancel()


class ControllerIdBlocks:
    """Blocks from the controller: `allocate_here` when it is this broker, else AllocateProducerIds (KIP-730)."""

    def __init__(
        self,
        here: BrokerId,
        image: Callable[[], ClusterImage],
        allocate_here: Callable[[], Awaitable[range]],
        send_to_peer: Callable[[], SendToPeer],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._here = here
        self._image = image
        self._allocate_here = allocate_here
        self._send_to_peer = send_to_peer
        self._sleep = sleep

    async def allocate(self) -> range:
        """Returns a block of ids. Raises COORDINATOR_LOAD_IN_PROGRESS, on which clients try again, without a controller."""
        pause_seconds = _AGAIN_SECONDS
        for attempt in range(_ATTEMPTS_MAX):
            if attempt:
                await self._sleep(pause_seconds)
                pause_seconds *= 2
            try:
                return await self._attempt()
            except OdradekError as error:
                reason = error
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"no producer ids could be had from the controller: {reason}",
        ) from reason

    async def _attempt(self) -> range:
        image = self._image()
        controller = image.controller_id
        if controller == self._here:
            return await self._allocate_here()
        if controller == NO_LEADER:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")

        epoch = next((broker.epoch for broker in image.brokers if broker.broker_id == self._here), -1)
        request = allocate_producer_ids.AllocateProducerIdsRequest(broker_id=self._here, broker_epoch=epoch)
        response = await self._send_to_peer()(
            controller, _ALLOCATE_PRODUCER_IDS, request, timeout_s=_RESPONSE_SECONDS_MAX
        )
        assert isinstance(response, allocate_producer_ids.AllocateProducerIdsResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code), f"broker {controller} allocated none")
        if response.producer_id_len < 1 or response.producer_id_start < 0:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {controller} allocated an empty block")
        return range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
