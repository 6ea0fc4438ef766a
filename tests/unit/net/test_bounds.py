"""Connections that share memory, over real sockets: large frames, peers that leave, trickle, or do not read."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.kit.frames import framed
from tests.kit.waiting import PATIENCE_S, until

from odradek.net import connection as connection_module
from odradek.net.connection import Connection
from odradek.net.hangups import PAUSED_SECONDS_MIN
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.replies import Chunks, HeldReply, Reply
from odradek.net.request_budget import PARKED_SECONDS, STALL_SECONDS
from odradek.net.server import Server

MEBIBYTE = 1 << 20
LARGEST = 8 * MEBIBYTE
LIMITS = ServerLimits(
    frame_bytes_max=LARGEST, request_bytes_max=2 * LARGEST, response_bytes_max=16 * MEBIBYTE
)
LONG_SECONDS = 3600.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Handler:
    """Answers with the size of what came. `mute`, `held` and `later` requests do what they are called after, `big` ones are
    answered with much."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.waiting: list[asyncio.Future[Chunks | None]] = []

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        self.sizes.append(len(frame))
        kind = bytes(frame[:8]).rstrip(b".")
        if kind == b"mute":
            connection.mute_for(LONG_SECONDS)
        if kind in (b"held", b"later", b"dropped"):
            future: asyncio.Future[Chunks | None] = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            if kind == b"dropped":
                connection.forget_frame()
            return HeldReply(future) if kind == b"held" else future
        if kind == b"big":
            return [framed(bytes(12 * MEBIBYTE))]
        return [framed(b"%d" % len(frame))]


class Running:
    def __init__(self, limits: ServerLimits) -> None:
        self.clock = Clock()
        self.handler = Handler()
        self.server = Server(self.handler, limits, now=self.clock)
        self.server.pipeline_of = lambda _: 0  # requests overlap
        self.port = 0
        self.sockets: list[socket.socket] = []

    async def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        self.sockets.append(sock)
        return sock

    async def send(self, sock: socket.socket, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(sock, data)

    async def ask(self, sock: socket.socket, payload: bytes) -> bytes:
        await self.send(sock, framed(payload))
        return await self.answer(sock)

    async def answer(self, sock: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE_S):
            data = b""
            while len(data) < 4 or len(data) < 4 + struct.unpack(">i", data[:4])[0]:
                part = await loop.sock_recv(sock, 65536)
                assert part, "closed"
                data += part
            return data[4:]

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.server.end_hangups()

    @property
    def held_bytes(self) -> int:
        return self.server.requests.held_bytes


@asynccontextmanager
async def running(limits: ServerLimits = LIMITS) -> AsyncIterator[Running]:
    it = Running(limits)
    it.port = await it.server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    try:
        yield it
    finally:
        for sock in it.sockets:
            sock.close()
        await it.server.stop(drain_seconds=0)


async def send_unfinished(it: Running, count: int) -> None:
    """Sends all but a byte of `count` frames of the largest size, as far as they are received."""

    async def attack(sock: socket.socket) -> None:
        try:
            await it.send(sock, struct.pack(">i", LARGEST) + bytes(LARGEST - 1))
        except OSError:
            pass

    attacks = [asyncio.ensure_future(attack(await it.connect())) for _ in range(count)]
    await until(lambda: it.server.requests.waiting_count >= count - 2)
    it.attacks = attacks  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "LINGER_SECONDS", 0.02)


async def test_unfinished_frames_of_many_connections_stay_below_the_bound_and_others_are_served() -> None:
    async with running() as it:
        await send_unfinished(it, 12)
        good = await it.connect()
        for size in (10, 60_000, MEBIBYTE, 2 * MEBIBYTE):
            assert await it.ask(good, bytes(size)) == b"%d" % size
        assert it.server.requests.counters.peak_bytes <= 2 * LARGEST


async def test_peers_that_stand_still_give_way_to_a_large_frame_that_waits() -> None:
    async with running() as it:
        await send_unfinished(it, 12)
        good = await it.connect()
        asking = asyncio.ensure_future(it.ask(good, bytes(LARGEST)))
        while not asking.done():
            await asyncio.sleep(0.005)
            it.pass_time(STALL_SECONDS / 20)
        assert await asking == b"%d" % LARGEST
        await until(lambda: it.server.connection_count < 13)


async def test_after_the_loop_stood_still_itself_no_one_is_blamed() -> None:
    async with running() as it:
        await send_unfinished(it, 12)
        it.server.watch_due_s -= 10
        it.pass_time(10)
        assert it.server.requests.counters.overdue == 0
        it.pass_time(STALL_SECONDS)
        assert it.server.requests.counters.overdue > 0


async def test_connections_that_end_in_a_frame_give_everything_back() -> None:
    async with running() as it:
        await send_unfinished(it, 6)
        assert it.held_bytes > LARGEST // 4
        for sock in it.sockets:
            sock.close()
        for attack in it.attacks:  # type: ignore[attr-defined]
            attack.cancel()
        for _ in range(20):
            await asyncio.sleep(0.005)
            it.pass_time(PAUSED_SECONDS_MIN)
        await until(lambda: it.server.connection_count == 0)
        assert it.held_bytes == 0
        assert it.server.requests.waiting_count == 0


async def test_a_large_request_counts_until_it_is_answered() -> None:
    async with running() as it:
        peer = await it.connect()
        await it.send(peer, framed(b"later...".ljust(LARGEST, b".")))
        await until(lambda: bool(it.handler.waiting))
        assert it.held_bytes == LARGEST
        it.handler.waiting[0].set_result([framed(b"done")])
        assert await it.answer(peer) == b"done"
        assert it.held_bytes == 0


async def test_a_large_request_that_needs_its_frame_no_longer_does_not_count_while_it_waits() -> None:
    async with running() as it:
        peer = await it.connect()
        await it.send(peer, framed(b"dropped.".ljust(LARGEST, b".")))
        await until(lambda: bool(it.handler.waiting))
        assert it.held_bytes == 0


async def test_a_large_request_that_is_never_answered_gives_way_to_those_that_wait() -> None:
    async with running(ServerLimits(frame_bytes_max=LARGEST, request_bytes_max=LARGEST)) as it:
        parked, good = await it.connect(), await it.connect()
        await it.send(parked, framed(b"later...".ljust(LARGEST, b".")))
        await until(lambda: bool(it.handler.waiting))
        asking = asyncio.ensure_future(it.ask(good, bytes(LARGEST)))
        await until(lambda: it.server.requests.waiting_count == 1)
        it.pass_time(PARKED_SECONDS)
        assert await asking == b"%d" % LARGEST


async def test_small_requests_that_wait_are_bounded_on_each_connection() -> None:
    async with running() as it:
        peer = await it.connect()
        await it.send(peer, framed(b"later...".ljust(60_000, b".")) * 60)
        before = -1
        while before != len(it.handler.sizes):
            before = len(it.handler.sizes)
            await asyncio.sleep(0.02)
        assert sum(it.handler.sizes) <= MEBIBYTE + 60_000
        while len(it.handler.sizes) < 60 or it.handler.waiting:
            for future in it.handler.waiting:
                future.set_result([framed(b"done")])
            it.handler.waiting.clear()
            await asyncio.sleep(0.001)
        assert len(it.handler.sizes) == 60


@pytest.mark.parametrize("kind", [b"mute", b"held"])
@pytest.mark.parametrize("pipelined", [False, True], ids=["alone", "with more behind it"])
@pytest.mark.parametrize("is_reset", [False, True], ids=["finished", "reset"])
async def test_a_peer_that_leaves_while_nothing_is_read_from_it_is_noticed(
    kind: bytes, pipelined: bool, is_reset: bool
) -> None:
    async with running() as it:
        peer = await it.connect()
        await it.send(peer, framed(kind))
        await until(lambda: len(it.handler.sizes) == 1)
        if pipelined:
            await it.send(peer, framed(b"behind") * 2_000)
        if is_reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        for _ in range(3):
            await asyncio.sleep(0.005)
            it.pass_time(PAUSED_SECONDS_MIN)
        await until(lambda: it.server.connection_count == 0)
        assert len(it.handler.sizes) == 1
        assert not it.server.hangups.any_paused


async def test_a_peer_that_leaves_while_it_does_not_read_is_noticed() -> None:
    async with running() as it:
        peer = await it.connect()
        await it.send(peer, framed(b"big"))
        await until(lambda: it.server.answers.count == 1)
        peer.close()  # with unread bytes: a reset
        await until(lambda: it.server.connection_count == 0)
        assert it.server.answers.held_bytes == 0


async def test_a_muted_peer_that_stays_is_left_alone() -> None:
    async with running() as it:
        peer = await it.connect()
        assert await it.ask(peer, b"mute") == b"4"
        it.pass_time(PAUSED_SECONDS_MIN)
        it.pass_time(PAUSED_SECONDS_MIN)
        assert it.server.connection_count == 1


async def test_a_peer_that_trickles_a_frame_is_idle() -> None:
    async with running() as it:
        slow, busy = await it.connect(), await it.connect()
        await it.send(slow, struct.pack(">i", 1000))
        for _ in range(3):
            it.clock.seconds += 250
            await it.send(slow, b"x")
            assert await it.ask(busy, b"hello") == b"5"
        it.server.sweep()
        await until(lambda: it.server.connection_count == 1)
        assert await it.ask(busy, b"hello") == b"5"


async def test_a_frame_that_goes_on_slowly_is_not_idle() -> None:
    async with running() as it:
        slow = await it.connect()
        await it.send(slow, struct.pack(">i", 7 * 100_000))
        for _ in range(7):
            it.clock.seconds += 250
            before = [connection.last_active for connection in it.server.connections]
            await it.send(slow, bytes(100_000))
            await until(
                lambda seen=before: [connection.last_active for connection in it.server.connections] != seen
            )
            it.server.sweep()
        assert await it.answer(slow) == b"700000"


async def test_who_does_not_read_pays_when_others_need_the_room() -> None:
    async with running() as it:
        selfish = await it.connect()
        await it.send(selfish, framed(b"big"))
        await until(lambda: it.server.answers.held_bytes > 8 * MEBIBYTE)
        it.pass_time(STALL_SECONDS)
        it.pass_time(STALL_SECONDS)
        await until(lambda: it.server.connection_count == 0)
        assert it.server.answers.held_bytes == 0


async def test_a_peer_that_never_reads_is_let_go_even_where_idle_connections_may_stay() -> None:
    limits = ServerLimits(idle_seconds_max=1e12, frame_bytes_max=LARGEST)
    async with running(limits) as it:
        selfish = await it.connect()
        await it.send(selfish, framed(b"big"))
        await until(lambda: it.server.answers.count == 1)
        it.pass_time(299)
        assert it.server.connection_count == 1
        it.pass_time(2)
        await until(lambda: it.server.connection_count == 0)


async def test_memory_that_was_given_back_is_reported_once() -> None:
    async with running(ServerLimits(frame_bytes_max=64 * MEBIBYTE)) as it:
        drained: list[int] = []
        it.server.on_drained = lambda: drained.append(1)
        peer = await it.connect()
        await it.send(peer, framed(b"later...".ljust(40 * MEBIBYTE, b".")))
        await until(lambda: bool(it.handler.waiting))
        it.pass_time(1.0)
        assert not drained
        it.handler.waiting[0].set_result([framed(b"done")])
        assert await it.answer(peer) == b"done"
        it.pass_time(1.0)
        it.pass_time(1.0)
        assert drained == [1]
