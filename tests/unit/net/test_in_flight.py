"""The bytes of a connection that are in the broker: requests that come in or wait, and responses that no one takes."""

from __future__ import annotations

from tests.kit.frames import framed, read_frame
from tests.kit.waiting import until
from tests.unit.net.test_connection import Echo, connected, serving

from odradek.protocol.framing import RECEIVE_BYTES_MAX

LARGE = 4 * RECEIVE_BYTES_MAX
NOTHING = (0, 0, 0)


async def test_requests_are_in_flight_until_they_are_answered_and_responses_until_they_are_taken() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:first") + framed(b"later:second"))
        await until(lambda: len(echo.held) == 2)
        (connection,) = server.connections
        assert connection.load == (0, len(b"later:first" + b"later:second"), 0)
        echo.held[b"later:second"].set_result([b"x" * 100, b"y" * 11])
        await until(lambda: connection.load.response_bytes)
        assert connection.load == (0, len(b"later:first"), 111), (
            "it is ready, and waits for the one before it"
        )
        echo.held[b"later:first"].set_result([framed(b"done")])
        assert await read_frame(reader) == b"done"
        await until(lambda: connection.load == NOTHING)


async def test_a_part_of_a_request_and_a_large_one_that_is_handled_are_counted() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        frame = framed(b"later:" + bytes(LARGE))
        writer.write(frame[: LARGE // 2])
        await until(
            lambda: any(connection.load.request_bytes > LARGE // 4 for connection in server.connections)
        )
        (connection,) = server.connections
        assert connection.load.request_bytes <= len(frame)
        writer.write(frame[LARGE // 2 :])
        await until(lambda: len(echo.held) == 1)
        assert LARGE <= connection.load.request_bytes <= len(frame) + RECEIVE_BYTES_MAX
        (pending,) = echo.held.values()
        pending.set_result([framed(b"done")])
        assert await read_frame(reader) == b"done"
        await until(lambda: connection.load == NOTHING)


async def test_responses_of_a_peer_that_does_not_read_are_in_flight() -> None:
    echo = Echo()
    echo.reply_bytes = 64 << 20
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"much"))
        await until(lambda: any(connection.load.response_bytes for connection in server.connections))
        (connection,) = server.connections
        assert 32 << 20 < connection.load.response_bytes <= echo.reply_bytes + (1 << 20)
        await read_frame(reader)
        await until(lambda: connection.load == NOTHING)
