"""Requests that only the controller can serve, passed on to it whole, and its answers passed back (KIP-590).

Whoever asked sees one broker: after a change was made elsewhere, its answer waits until this broker knows of it, too.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final, Protocol

from odradek.broker.forwarded import FORWARD
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.net.peers import PeerUnreachable
from odradek.protocol import Message
from odradek.protocol.messages.forward import ForwardRequest, ForwardResponse
from odradek.runtime.ports import Buffer
from odradek.telemetry import events

_log = events.get("broker")

_GIVE_UP_SECONDS: Final = 20.0
_KNOWN_SECONDS_MAX: Final = 5.0
_RETRY_SECONDS: Final = 0.1
_SIZE: Final = struct.Struct(">i")


class Cluster(Protocol):
    """What forwarding asks of this broker's place in the cluster."""

    @property
    def leads(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def controller_id(self) -> BrokerId | None: ...

    async def ask(self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float) -> Message:
        """Raises PeerUnreachable."""

    async def controller_changed(self) -> None:
        """Returns when another broker, or none, became the controller."""

    async def reached(self, controller_epoch: int, version: int) -> None:
        """Returns when this broker's image is as new as that."""


class Forwarding:
    """Used on the event loop only."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def answer(self, frame: bytes, principal: str, client_host: str) -> list[Buffer] | None:
        """The controller's answer, ready to send; None when it is to be served here: there is no other controller."""
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                answer = await self._ask(
                    ForwardRequest(request_data=frame, principal=principal, client_host=client_host)
                )
        except TimeoutError:
            _log.warning(
                "request_not_forwarded", reason=f"no controller answered within {_GIVE_UP_SECONDS:.0f} s"
            )
            return None
        if answer is None or answer.response_data is None:
            return None
        try:
            async with asyncio.timeout(_KNOWN_SECONDS_MAX):
                await self._cluster.reached(answer.controller_epoch, answer.image_version)
        except TimeoutError:
            _log.warning("image_is_late", version=answer.image_version)
        return [_SIZE.pack(len(answer.response_data)), answer.response_data]

    async def _ask(self, request: ForwardRequest) -> ForwardResponse | None:
        cluster = self._cluster
        while not cluster.leads:
            controller = cluster.controller_id
            if controller is None:
                await cluster.controller_changed()
                continue
            try:
                answer = await cluster.ask(controller, FORWARD, request, timeout_s=_GIVE_UP_SECONDS)
            except PeerUnreachable:
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            assert isinstance(answer, ForwardResponse)
            if answer.error_code == ErrorCode.NONE:
                return answer
            if answer.error_code != ErrorCode.NOT_CONTROLLER:
                raise KafkaError(
                    ErrorCode.of(answer.error_code), f"broker {controller} takes no forwarded request"
                )
            await asyncio.sleep(_RETRY_SECONDS)  # an election is under way
        return None
