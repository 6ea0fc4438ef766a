"""What protocols and transports may count on, on real sockets and on simulated ones alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kit.waiting import until

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
HOST = "127.0.0.1"
MEGABYTE = bytes(range(256)) * 4096


class Recorder(asyncio.Protocol):
    """Keeps what happens to it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.events: list[str] = []
        self.received = bytearray()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self.writable = asyncio.Event()
        self.paused = asyncio.Event()
        self.keeps_open = False
        self.transport: asyncio.Transport
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        self.ended.set_result(None)
        return self.keeps_open

    def pause_writing(self) -> None:
        self.events.append("pause")
        self.writable.clear()
        self.paused.set()

    def resume_writing(self) -> None:
        self.events.append("resume")
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")
        self.lost.set_result(exc)


class Echo(Recorder):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    """Echoes through one small buffer of its own, as the broker reads."""

    def __init__(self) -> None:
        self.buffer = bytearray(1000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


async def serve(factory: Callable[[], asyncio.BaseProtocol]) -> tuple[asyncio.AbstractServer, int]:
    server = await asyncio.get_running_loop().create_server(factory, HOST, 0)
    return server, server.sockets[0].getsockname()[1]


async def connect(port: int) -> Recorder:
    _, protocol = await asyncio.get_running_loop().create_connection(Recorder, HOST, port)
    return protocol


async def pair() -> tuple[asyncio.AbstractServer, Recorder, Recorder]:
    """A server, the client's protocol and the accepted one."""
    accepted: asyncio.Queue[Recorder] = asyncio.Queue()

    def factory() -> Recorder:
        protocol = Recorder()
        accepted.put_nowait(protocol)
        return protocol

    server, port = await serve(factory)
    client = await connect(port)
    return server, client, await accepted.get()


@pytest.mark.parametrize("factory", [Echo, BufferedEcho])
def test_bytes_arrive_whole_and_in_order(run: Run, factory: Callable[[], asyncio.BaseProtocol]) -> None:
    async def main() -> None:
        server, port = await serve(factory)
        client = await connect(port)
        client.transport.write(MEGABYTE[:300_000])
        client.transport.writelines([MEGABYTE[300_000:300_001], bytearray(), MEGABYTE[300_001:]])
        await until(lambda: len(client.received) == len(MEGABYTE))
        assert client.received == MEGABYTE
        client.transport.close()
        assert await client.lost is None
        server.close()

    run(main)


def test_a_port_without_listener_refuses(run: Run) -> None:
    async def main() -> None:
        server, port = await serve(Recorder)
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await connect(port)

    run(main)


def test_a_port_in_use_cannot_be_bound(run: Run) -> None:
    async def main() -> None:
        server, port = await serve(Recorder)
        with pytest.raises(OSError, match="in use"):
            await asyncio.get_running_loop().create_server(Recorder, HOST, port)
        server.close()

    run(main)


def test_both_ends_know_both_addresses(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        assert client.transport.get_extra_info("sockname") == accepted.transport.get_extra_info("peername")
        assert client.transport.get_extra_info("peername") == accepted.transport.get_extra_info("sockname")
        assert client.transport.get_extra_info("nothing", "default") == "default"
        client.transport.close()
        await accepted.lost
        server.close()

    run(main)


def test_close_flushes_and_the_peer_sees_the_end(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        client.transport.write(MEGABYTE)
        client.transport.close()
        assert client.transport.is_closing()
        client.transport.write(b"ignored or sent, never an error")
        assert await accepted.lost is None
        assert accepted.received[: len(MEGABYTE)] == MEGABYTE
        assert accepted.events == ["made", "eof", "lost"]
        assert await client.lost is None
        server.close()

    run(main)


def test_abort_ends_both_sides(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        client.transport.abort()
        assert await client.lost is None
        await accepted.lost
        server.close()

    run(main)


def test_half_closed_connections_still_carry_the_other_way(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        accepted.keeps_open = True
        client.transport.write_eof()
        with pytest.raises(RuntimeError):
            client.transport.write(b"too late")
        await accepted.ended
        accepted.transport.write(b"answer")
        accepted.transport.close()
        await client.lost
        assert client.received == b"answer"
        server.close()

    run(main)


def test_a_peer_that_does_not_read_pauses_the_writer(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        client.transport.set_write_buffer_limits(high=1000)
        accepted.transport.pause_reading()
        while not client.paused.is_set():
            client.transport.write(MEGABYTE)
            await asyncio.sleep(0)
        assert client.transport.get_write_buffer_size() > 1000
        accepted.transport.resume_reading()
        await client.writable.wait()
        assert client.events == ["made", "pause", "resume"]
        assert client.transport.get_write_buffer_size() <= 250
        client.transport.close()
        await accepted.lost
        assert len(accepted.received) % len(MEGABYTE) == 0
        server.close()

    run(main)


def test_nothing_is_delivered_while_reading_is_paused(run: Run) -> None:
    async def main() -> None:
        server, client, accepted = await pair()
        accepted.transport.pause_reading()
        assert not accepted.transport.is_reading()
        client.transport.write(b"later")
        await asyncio.sleep(0.02)
        assert not accepted.received
        accepted.transport.resume_reading()
        await until(lambda: bytes(accepted.received) == b"later")
        client.transport.close()
        await accepted.lost
        server.close()

    run(main)


def test_an_error_in_a_protocol_ends_its_connection_only(run: Run) -> None:
    class Faulty(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ArithmeticError("planted")

    async def main() -> None:
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: reported.append(context["exception"])
        )
        server, port = await serve(Faulty)
        victim, other = await connect(port), await connect(port)
        victim.transport.write(b"x")
        await victim.lost
        assert [str(error) for error in reported] == ["planted"]
        assert not other.lost.done()
        other.transport.abort()
        await other.lost
        server.close()

    run(main)


def test_streams_work_on_top(run: Run) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        writer.write(line.upper())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def main() -> None:
        server = await asyncio.start_server(answer, HOST, 0)
        reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
        writer.write(b"hello\n")
        assert await reader.read() == b"HELLO\n"
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()

    run(main)


def test_callbacks_keep_their_order_and_timers_theirs(run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        order: list[int] = []
        loop.call_later(0.03, order.append, 5)
        loop.call_later(0.01, order.append, 4)
        cancelled = loop.call_later(0.005, order.append, 99)
        for number in (1, 2, 3):
            loop.call_soon(order.append, number)
        cancelled.cancel()
        start = loop.time()
        await asyncio.sleep(0.05)
        assert loop.time() - start >= 0.049
        assert order == [1, 2, 3, 4, 5]

    run(main)


def test_waiting_with_a_limit_gives_up(run: Run) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.get_running_loop().create_future()

    run(main)
