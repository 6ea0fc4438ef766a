"""A connection may be given up in the middle of its TLS handshake: it is closed then, not at its deadline."""

import asyncio
import ssl
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.client.network.connection import BrokerConnection
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.net.outgoing_security import OutgoingSecurity
from odradek.net.peer_connection import PeerConnection
from odradek.runtime.real_clock import SystemClock

SECURITY = OutgoingSecurity(context=ssl.create_default_context)
DEADLINE_S = 3600
SECONDS = 30


class SilentServer(asyncio.Protocol):
    """Reads the beginning of a handshake, and says nothing."""

    def __init__(self) -> None:
        self.greeted = asyncio.Event()
        self.lost = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.greeted.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


def connect_as_broker(port: int) -> Coroutine[Any, Any, object]:
    return PeerConnection.open(
        "broker 2",
        ("127.0.0.1", port),
        client_id="1",
        now=time.monotonic,
        timeout_s=DEADLINE_S,
        on_lost=lambda: None,
        security=SECURITY,
    )


def connect_as_client(port: int) -> Coroutine[Any, Any, object]:
    settings = ClientSettings.of(
        f"127.0.0.1:{port}", {"socket_connection_setup_timeout_ms": DEADLINE_S * 1000}
    )
    return BrokerConnection.open(Address("127.0.0.1", port), settings, SystemClock(), SECURITY)


@pytest.mark.parametrize("connect", [connect_as_broker, connect_as_client])
async def test_a_connection_that_is_cancelled_in_its_handshake_is_closed(
    connect: Callable[[int], Coroutine[Any, Any, object]],
) -> None:
    silent = SilentServer()
    server = await asyncio.get_running_loop().create_server(lambda: silent, "127.0.0.1", 0)
    try:
        connecting = asyncio.create_task(connect(server.sockets[0].getsockname()[1]))
        async with asyncio.timeout(SECONDS):
            await silent.greeted.wait()
            connecting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await connecting
            await silent.lost.wait()
    finally:
        server.close()
