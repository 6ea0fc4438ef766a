"""Requests that only the controller can serve, passed on to it whole, and its answers passed back (KIP-590).

The client sees one broker: after a change was made elsewhere, its answer waits until this broker knows of it, too. A request
that waits for a controller is passed on only while someone waits for its answer: a client that gave up may have had its will
through another broker, and a deletion that comes after that would hit the next topic of the name.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final, Protocol

from odradek.broker.cluster.forwarded_apis import FORWARD
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.net.peers import PeerUnreachable
from odradek.protocol import Message
from odradek.protocol.messages.cluster.forward import ForwardRequest, ForwardResponse
from odradek.runtime.ports import Buffer
from odradek.security.principals import Requester
from odradek.telemetry import events

_log = events.caused_by_peers("broker")

_GIVE_UP_SECONDS: Final = 20.0
_KNOWN_SECONDS_MAX: Final = 5.0
RETRY_SECONDS: Final = 0.1
_SIZE: Final = struct.Struct(">i")


class ForwardingCluster(Protocol):
    """The parts of `ClusterLink` that forwarding needs."""

    @property
    def leads(self) -> bool:
        """Whether this broker is the controller."""

    @property
    def controller_id(self) -> BrokerId | None: ...

    async def send_to_control_plane(
        self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float
    ) -> Message:
        """Raises PeerUnreachable."""

    async def controller_changed(self) -> None:
        """Returns when another broker, or none, became the controller."""

    async def reached(self, controller_epoch: int, version: int) -> None:
        """Returns when this broker's image is as new as that."""


class Forwarding:
    """Forwards clients' requests to the controller, and returns its answers. Used on the event loop only."""

    def __init__(self, cluster: ForwardingCluster) -> None:
        self._cluster = cluster

    async def answer(
        self,
        frame: bytes,
        asker: Requester,
        has_gone: Callable[[], bool] = lambda: False,
    ) -> list[Buffer] | None:
        """Returns the controller's answer, ready to send; None when there is no other controller, so that this broker has to
        answer.

        Returns None, too, once `has_gone` tells that nothing waits for it: it was not passed on, and must not be served any
        more."""
        request = ForwardRequest(
            request_data=frame,
            principal=asker.principal,
            client_host=asker.host,
            authentication=asker.authentication,
        )
        try:
            async with asyncio.timeout(_GIVE_UP_SECONDS):
                response = await self._send(request, has_gone)
        except TimeoutError:
            _log.warning(
                "request_not_forwarded", reason=f"no controller answered within {_GIVE_UP_SECONDS:.0f} s"
            )
            return None
        if response is None or response.response_data is None:
            return None
        try:
            async with asyncio.timeout(_KNOWN_SECONDS_MAX):
                await self._cluster.reached(response.controller_epoch, response.image_version)
        except TimeoutError:
            _log.warning("image_is_late", version=response.image_version)
        return [_SIZE.pack(len(response.response_data)), response.response_data]

    async def _send(self, request: ForwardRequest, has_gone: Callable[[], bool]) -> ForwardResponse | None:
        cluster = self._cluster
        while not cluster.leads:
            controller = cluster.controller_id
            if controller is None:
                await cluster.controller_changed()
            elif (response := await self._answer_of(controller, request)) is not None:
                return response
            else:
                await asyncio.sleep(RETRY_SECONDS)  # it is away, or an election is under way
            if has_gone():
                _log.info("request_not_forwarded", reason="the client disconnected")
                return None
        return None

    async def _answer_of(self, controller: BrokerId, request: ForwardRequest) -> ForwardResponse | None:
        """Returns the answer; None when another broker must be asked, or this one again."""
        try:
            response = await self._cluster.send_to_control_plane(
                controller, FORWARD, request, timeout_s=_GIVE_UP_SECONDS
            )
        except PeerUnreachable:
            return None
        assert isinstance(response, ForwardResponse)
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            return None
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(
                ErrorCode.of(response.error_code),
                f"broker {controller}, the controller, refuses forwarded requests",
            )
        return response
