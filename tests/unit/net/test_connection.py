"""Connections over real sockets: order of replies, back-pressure, limits, half-closed peers."""

import asyncio
import gc
import socket
import struct
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import groupby

import pytest
from tests.kit.frames import framed, read_frame
from tests.kit.waiting import PATIENCE_S, until

from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.replies import Chunks, HeldReply, PeerError, Reply
from odradek.net.server import ListenError, Server
from odradek.protocol.api import APIS, BROKER_SOFTWARE
from odradek.runtime.real import real_runtime

PRODUCE, METADATA, OFFSET_COMMIT = 0, 3, 8


class Echo:
    """Answers with what came; `later:` frames wait until released, `none:` frames get no reply, `bad:` frames drop."""

    def __init__(self) -> None:
        self.handled: list[bytes] = []
        self.held: dict[bytes, asyncio.Future[Chunks | None]] = {}
        self.reply_bytes = 0
        self.on_held: Callable[[Connection], None] = lambda _: None

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        payload = bytes(frame)
        self.handled.append(payload)
        if payload.startswith(b"bad:"):
            raise PeerError("a bad frame")
        if payload.startswith(b"none:"):
            return None
        if payload.startswith(b"later:"):
            future: asyncio.Future[Chunks | None] = asyncio.get_running_loop().create_future()
            self.held[payload] = future
            return future
        if payload.startswith(b"held:"):
            self.held[payload] = asyncio.get_running_loop().create_future()
            self.on_held(connection)
            return HeldReply(self.held[payload])
        if payload.startswith(b"task:"):
            return self._task(payload)
        body = payload * (1 + self.reply_bytes // max(len(payload), 1))
        return [framed(body)]

    def _task(self, payload: bytes) -> Awaitable[Chunks | None]:
        async def work() -> Chunks | None:
            await asyncio.sleep(0)
            return [framed(payload)]

        async def finish(begun: Awaitable[Chunks | None]) -> Chunks | None:
            return await begun

        return finish(work())


@asynccontextmanager
async def serving(echo: Echo, limits: ServerLimits | None = None) -> AsyncIterator[tuple[Server, int]]:
    server = Server(echo, limits or ServerLimits(), now=real_runtime().clock.monotonic)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.stop(drain_seconds=0)


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 16)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def test_replies_come_in_the_order_of_the_requests_even_when_a_later_one_is_ready_first() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"one") + framed(b"later:two") + framed(b"three") + framed(b"task:four"))
        assert await read_frame(reader) == b"one"
        await until(lambda: len(echo.handled) == 4)
        echo.held[b"later:two"].set_result([framed(b"two")])
        assert [await read_frame(reader) for _ in range(3)] == [b"two", b"three", b"task:four"]


async def test_a_request_without_a_reply_takes_no_place_in_the_order() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"none:a") + framed(b"b"))
        assert await read_frame(reader) == b"b"
        assert echo.handled == [b"none:a", b"b"]


async def test_a_peer_that_breaks_the_protocol_is_dropped_after_its_earlier_answers() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"fine") + framed(b"bad:") + framed(b"never"))
        assert await read_frame(reader) == b"fine"
        assert await reader.read() == b""
        assert b"never" not in echo.handled


@pytest.mark.parametrize("bad", [framed(b"bad:"), struct.pack(">i", -1)], ids=["request", "frame"])
async def test_what_was_asked_before_a_bad_request_is_answered_before_the_connection_ends(bad: bytes) -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:a") + framed(b"later:b"))
        await until(lambda: len(echo.held) == 2)
        writer.write(bad)
        writer.write(framed(b"never") * 100)
        await until(lambda: all(connection.is_dropped for connection in server.connections))
        echo.held[b"later:b"].set_result([framed(b"b")])
        echo.held[b"later:a"].set_result([framed(b"a")])
        assert [await read_frame(reader), await read_frame(reader), await reader.read()] == [b"a", b"b", b""]
        assert b"never" not in echo.handled


async def test_a_request_that_fails_ends_the_connection_behind_the_answers_before_it() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:a") + framed(b"later:fails") + framed(b"later:c") + framed(b"behind"))
        await until(lambda: len(echo.handled) == 4)
        echo.held[b"later:fails"].set_exception(PeerError("it cannot be answered"))
        await until(lambda: echo.held[b"later:c"].cancelled())
        echo.held[b"later:a"].set_result([framed(b"a")])
        assert [await read_frame(reader), await reader.read()] == [b"a", b""]


async def test_a_dropped_peer_waits_for_earlier_answers_no_longer_than_it_may_linger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("odradek.net.connection.LINGER_SECONDS", 0.01)
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:a") + framed(b"bad:"))
        assert await reader.read() == b""
        await until(lambda: server.connection_count == 0)
        assert echo.held[b"later:a"].cancelled()


@pytest.mark.parametrize("size", [-1, 0, 1025, 2**31 - 1, -(2**31)])
async def test_an_impossible_frame_size_ends_the_connection_and_no_other(size: int) -> None:
    echo = Echo()
    async with (
        serving(echo, ServerLimits(frame_bytes_max=1024)) as (_, port),
        connected(port) as (good_reader, good_writer),
    ):
        async with connected(port) as (reader, writer):
            writer.write(struct.pack(">i", size) + b"x" * 100)
            assert await reader.read() == b""
        good_writer.write(framed(b"still here"))
        assert await read_frame(good_reader) == b"still here"


async def test_no_more_requests_are_handled_than_may_be_in_flight() -> None:
    echo = Echo()
    async with serving(echo, ServerLimits(in_flight_max=3)) as (_, port), connected(port) as (reader, writer):
        names = [b"later:%d" % number for number in range(10)]
        for name in names:
            writer.write(framed(name))
        for count, name in enumerate(names):
            await until(lambda wanted=name: wanted in echo.held)
            assert len(echo.handled) <= count + 3
            echo.held[name].set_result([framed(name)])
            assert await read_frame(reader) == name


async def test_nothing_is_served_behind_a_held_reply_even_when_an_earlier_one_arrives() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:a") + framed(b"held:b") + framed(b"c"))
        await until(lambda: b"held:b" in echo.held)
        echo.held[b"later:a"].set_result([framed(b"a")])
        assert await read_frame(reader) == b"a"
        assert b"c" not in echo.handled
        echo.held[b"held:b"].set_result([framed(b"b")])
        assert [await read_frame(reader), await read_frame(reader)] == [b"b", b"c"]


@pytest.mark.parametrize("together", [True, False], ids=["in one piece", "later"])
async def test_who_makes_a_held_reply_may_hear_that_something_waits_behind_it(together: bool) -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        heard: list[int] = []

        def hurry() -> None:
            heard.append(len(echo.handled))
            if not echo.held[b"held:a"].done():
                echo.held[b"held:a"].set_result([framed(b"a")])

        echo.on_held = lambda connection: connection.on_next.update({1: hurry})
        writer.write(framed(b"held:a") + (framed(b"b") if together else b""))
        await until(lambda: b"held:a" in echo.held)
        if not together:
            await asyncio.sleep(0.01)
            assert not heard
            writer.write(framed(b"b"))
        assert [await read_frame(reader), await read_frame(reader)] == [b"a", b"b"]
        assert set(heard) == {1}, "before it was served"


async def test_a_client_that_does_not_read_is_not_served_further_until_it_does() -> None:
    echo = Echo()
    echo.reply_bytes = 1 << 20
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"fill") * 200)
        await until(lambda: echo.handled)
        before = -1
        while before != len(echo.handled):
            before = len(echo.handled)
            await asyncio.sleep(0.1)
        assert before < 150, "replies of 1 MiB each would pile up without bound"
        for _ in range(200):
            assert len(await read_frame(reader)) >= 1 << 20


async def test_a_client_that_only_closes_its_writing_side_still_gets_its_answers() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:last"))
        writer.write_eof()
        await until(lambda: b"later:last" in echo.held)
        await asyncio.sleep(0.05)
        echo.held[b"later:last"].set_result([framed(b"answer")])
        assert await read_frame(reader) == b"answer"
        assert await reader.read() == b""
        await until(lambda: server.connection_count == 0)


async def test_a_lost_connection_cancels_what_it_waited_for() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (_, writer):
        writer.write(framed(b"later:x"))
        await until(lambda: echo.held)
        client = writer.get_extra_info("socket")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close with a reset
        writer.transport.abort()
        await until(lambda: server.connection_count == 0)
        await until(lambda: echo.held[b"later:x"].cancelled())


@pytest.mark.check(44)
async def test_connections_beyond_the_limits_are_closed_at_once() -> None:
    echo = Echo()
    limits = ServerLimits(connections_max=3, connections_per_host_max=2)
    async with serving(echo, limits) as (server, port), connected(port) as (first_reader, first_writer):
        async with connected(port):
            await until(lambda: server.connection_count == 2)
            async with connected(port) as (reader, _):
                with suppress(ConnectionResetError):
                    assert await reader.read() == b""
            first_writer.write(framed(b"still here"))
            assert await read_frame(first_reader) == b"still here"
        await until(lambda: server.connection_count == 1)
        async with connected(port) as (reader, writer):
            writer.write(framed(b"in"))
            assert await read_frame(reader) == b"in"


@pytest.mark.check(44)
async def test_brokers_come_in_beyond_the_limit_and_the_longest_unused_client_gives_way() -> None:
    clock, echo = Clock(), Echo()
    server = Server(echo, ServerLimits(connections_max=2), now=clock)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="CLIENTS"), "127.0.0.1", 0)
    for_brokers = await server.listen(OpenListener(name="BROKERS", is_for_brokers=True), "127.0.0.1", 0)
    async with connected(port) as (unused, _), connected(port) as (used_reader, used_writer):
        await until(lambda: server.connection_count == 2)
        clock.seconds += 1
        used_writer.write(framed(b"used"))
        assert await read_frame(used_reader) == b"used"
        async with connected(for_brokers) as (broker_reader, broker_writer):
            broker_writer.write(framed(b"broker"))
            assert await read_frame(broker_reader) == b"broker"
            with suppress(ConnectionResetError):
                assert await unused.read() == b""
            used_writer.write(framed(b"still here"))
            assert await read_frame(used_reader) == b"still here"
    await server.stop(drain_seconds=0)


async def test_a_port_in_use_is_one_clear_sentence() -> None:
    async with serving(Echo()) as (_, port):
        other = Server(Echo(), ServerLimits(), now=real_runtime().clock.monotonic)
        other.pipeline_of = lambda _: 0  # requests overlap
        with pytest.raises(
            ListenError, match=f"cannot listen on 127.0.0.1:{port}: another process uses this port"
        ):
            await other.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", port)


async def test_every_interface_is_one_port_when_the_system_chooses_it() -> None:
    server = Server(Echo(), ServerLimits(), now=real_runtime().clock.monotonic)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "", 0)
    try:
        async with connected(port) as (reader, writer):
            writer.write(framed(b"hello"))
            assert await read_frame(reader) == b"hello"
        assert server.ports == {port}
    finally:
        await server.stop(drain_seconds=0)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.check(44)
async def test_idle_connections_are_closed_and_those_that_wait_or_work_are_not() -> None:
    clock, echo = Clock(), Echo()
    server = Server(echo, ServerLimits(idle_seconds_max=600), now=clock)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    async with (
        connected(port) as (idle, _),
        connected(port) as (waiting, wait),
        connected(port) as (busy, work),
    ):
        wait.write(framed(b"later:x"))
        await until(lambda: echo.held and server.connection_count == 3)
        clock.seconds += 599
        work.write(framed(b"now"))
        assert await read_frame(busy) == b"now"
        clock.seconds += 2
        server.sweep()
        assert await idle.read() == b""
        echo.held[b"later:x"].set_result([framed(b"x")])
        assert await read_frame(waiting) == b"x"
        work.write(framed(b"again"))
        assert await read_frame(busy) == b"again"
        await server.stop(drain_seconds=0)


async def test_a_client_that_takes_no_answer_at_all_is_let_go_in_the_end() -> None:
    clock, echo = Clock(), Echo()
    echo.reply_bytes = 32 << 20
    server = Server(echo, ServerLimits(idle_seconds_max=600), now=clock)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    async with connected(port) as (_, writer):
        writer.write(framed(b"fill"))
        await until(lambda: server.answers.held_bytes > 0)
        clock.seconds += 601
        server.sweep()
        await until(lambda: server.connection_count == 0)
        assert server.answers.held_bytes == 0
    await server.stop(drain_seconds=0)


async def test_stopping_answers_what_is_under_way_and_serves_nothing_new() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:x"))
        await until(lambda: echo.held)
        stopping = asyncio.ensure_future(server.stop(drain_seconds=1000))
        await asyncio.sleep(0.05)
        writer.write(framed(b"late"))
        await asyncio.sleep(0.05)
        echo.held[b"later:x"].set_result([framed(b"x")])
        assert await read_frame(reader) == b"x"
        assert await reader.read() == b""
        async with asyncio.timeout(PATIENCE_S):
            await stopping
        assert echo.handled == [b"later:x"]


async def test_stopping_does_not_wait_for_clients_that_always_ask_again() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):

        async def ask_on() -> None:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                writer.write(framed(b"task:a") * 8)
                while True:
                    await read_frame(reader)
                    writer.write(framed(b"task:a"))

        asking = asyncio.ensure_future(ask_on())
        await until(lambda: len(echo.handled) > 100)
        async with asyncio.timeout(PATIENCE_S):
            await server.stop(drain_seconds=1000)
        await asking


async def test_a_request_that_is_given_up_ends_its_connection_after_the_earlier_answers() -> None:
    echo = Echo()
    async with serving(echo) as (_, port), connected(port) as (reader, writer):
        writer.write(framed(b"first") + framed(b"later:never") + framed(b"behind"))
        await until(lambda: len(echo.handled) == 3)
        echo.held[b"later:never"].cancel()
        assert await read_frame(reader) == b"first"
        assert await reader.read() == b""


async def test_stopping_gives_up_on_what_is_not_answered_in_time() -> None:
    echo = Echo()
    async with serving(echo) as (server, port), connected(port) as (reader, writer):
        writer.write(framed(b"later:x"))
        await until(lambda: echo.held)
        await server.stop(drain_seconds=0.05)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        assert echo.held[b"later:x"].cancelled()
        assert server.connection_count == 0


class Stubborn(Echo):
    """Its work fails when it is cancelled."""

    def _task(self, payload: bytes) -> Awaitable[Chunks | None]:
        async def work() -> Chunks | None:
            try:
                await asyncio.Event().wait()
            finally:
                raise RuntimeError("a bug in tidying up")

        return work()


async def test_an_error_after_the_client_left_is_reported_all_the_same() -> None:
    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(str(context["exception"]))
    )
    echo = Stubborn()
    async with serving(echo) as (server, port):
        async with connected(port) as (_, writer):
            writer.write(framed(b"task:x"))
            await until(lambda: echo.handled)
            client = writer.get_extra_info("socket")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await until(lambda: server.connection_count == 0 and reported)
    assert reported == ["a bug in tidying up"]


class Laborious:
    """Each request takes a millisecond of a clock that nothing else moves. It notes whose it was, and answers nothing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.served: list[bytes] = []

    def now(self) -> float:
        return self.seconds

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        self.served.append(bytes(frame))
        self.seconds += 0.001
        return None


async def test_connections_with_many_requests_take_turns_and_one_with_a_single_request_waits_for_few() -> (
    None
):
    count = 1000
    handler = Laborious()
    server = Server(handler, ServerLimits(), now=handler.now)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    try:
        async with (
            connected(port) as (_, first),
            connected(port) as (_, second),
            connected(port) as (_, lone),
        ):
            first.write(framed(b"a") * count)
            second.write(framed(b"b") * count)
            async with asyncio.timeout(60):
                while not {b"a", b"b"} <= set(handler.served):
                    await asyncio.sleep(0)
                lone.write(framed(b"c"))
                while len(handler.served) < 2 * count + 1:
                    await asyncio.sleep(0)
    finally:
        await server.stop(drain_seconds=0)
    served = handler.served
    first_end, second_end = (2 * count - served[::-1].index(name) for name in (b"a", b"b"))
    both_wait = served[served.index(b"b") : min(first_end, second_end)]
    assert max(len(list(run)) for _, run in groupby(both_wait)) <= 4
    assert both_wait.count(b"a") == pytest.approx(both_wait.count(b"b"), rel=0.2)
    assert served.index(b"c") < count, "it is served while both of the others have many left"


async def test_a_request_whose_client_is_gone_before_its_first_step_leaves_no_coroutine_unawaited() -> None:
    class Gone(Echo):
        def handle(self, connection: Connection, frame: memoryview) -> Reply:
            connection.abort()
            return super().handle(connection, frame)

    echo = Gone()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with serving(echo) as (_, port), connected(port) as (reader, writer):
            writer.write(framed(b"task:1"))
            await until(lambda: echo.handled)
            async with asyncio.timeout(PATIENCE_S):
                assert await reader.read() == b""
        gc.collect()
    assert [str(warning.message) for warning in caught if "never awaited" in str(warning.message)] == []


def request_of(api_key: int, rest: bytes) -> bytes:
    return struct.pack(">h", api_key) + rest


class Pending:
    """Never answers until it is released."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.replies: list[asyncio.Future[Chunks | None]] = []
        self.software = ("", "")

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        connection.client_software = self.software
        self.begun.append(bytes(frame))
        self.replies.append(asyncio.get_running_loop().create_future())
        return self.replies[-1]

    def release(self) -> None:
        for reply in self.replies:
            if not reply.done():
                reply.set_result([framed(b"done")])


@asynccontextmanager
async def asked(handler: Pending, requests: list[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    server = Server(handler, ServerLimits(), now=real_runtime().clock.monotonic)
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    try:
        async with connected(port) as (reader, writer):
            writer.write(b"".join(framed(request) for request in requests))
            await until(lambda: bool(handler.begun))
            yield reader
    finally:
        await server.stop(drain_seconds=0)


@pytest.mark.parametrize("first", sorted(APIS))
async def test_a_request_waits_for_those_before_it_unless_they_are_of_one_pipeline(first: int) -> None:
    for second in {first, PRODUCE, OFFSET_COMMIT, METADATA}:
        handler = Pending()
        requests = [request_of(first, b"1"), request_of(second, b"2")]
        async with asked(handler, requests) as reader:
            if first == second and first in (PRODUCE, OFFSET_COMMIT):
                await until(lambda begun=handler.begun, wanted=requests: begun == wanted)
                continue
            assert handler.begun == requests[:1], (first, second)
            handler.release()
            assert await read_frame(reader) == b"done"
            await until(lambda begun=handler.begun, wanted=requests: begun == wanted)
            handler.release()


async def test_requests_of_a_broker_overlap() -> None:
    handler = Pending()
    handler.software = (BROKER_SOFTWARE, "1")
    requests = [request_of(key, b"") for key in (11, 0, 1)]
    async with asked(handler, requests):
        await until(lambda: handler.begun == requests)
