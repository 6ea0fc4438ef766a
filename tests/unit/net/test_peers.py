"""Asking other brokers: one connection for each broker and lane, deadlines, pauses between attempts, and no tasks left."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.model.errors import ErrorCode
from odradek.model.ids import BrokerId
from odradek.net.connection import Connection
from odradek.net.listening import OpenListener, ServerLimits
from odradek.net.peers import Peers, PeerUnreachable
from odradek.net.replies import Chunks, Reply
from odradek.net.server import Server
from odradek.protocol import APIS, api_by_name, decode, decode_request_header, encode_response
from odradek.protocol.messages.groups.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.runtime.real import real_runtime

HEARTBEAT = api_by_name("Heartbeat").key
ME, OTHER = BrokerId(1), BrokerId(2)


class Broker:
    """Answers ApiVersions and Heartbeat; a heartbeat of the group "later" waits in `waiting`, one of "never" for ever."""

    def __init__(self) -> None:
        self.software: list[str] = []
        self.asked: list[str] = []
        self.connections: list[Connection] = []
        self.waiting: dict[int, asyncio.Future[Chunks | None]] = {}
        self.offered = {key: (api.versions.min, api.versions.max) for key, api in APIS.items()}
        self.newest_greeting = 4
        self.versions: list[int] = []

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        header, position = decode_request_header(frame)
        if header.api_key == 18:
            return self._greet(header.api_version, header.correlation_id, connection, frame, position)
        request, _ = decode(APIS[header.api_key].request, header.api_version, frame, position)
        assert isinstance(request, HeartbeatRequest)
        self.asked.append(request.group_id)
        self.versions.append(header.api_version)
        response = encode_response(
            header.api_key, header.api_version, header.correlation_id, HeartbeatResponse()
        )
        if request.group_id in ("later", "never"):
            future: asyncio.Future[Chunks | None] = asyncio.get_running_loop().create_future()
            if request.group_id == "later":
                self.waiting[len(self.waiting)] = future
                future.add_done_callback(lambda _: None)
            return self._when(future, response)
        if request.group_id == "nonsense":
            return [b"\x00\x00\x00\x04\x7f\x7f\x7f\x7f"]
        return response

    def _when(self, future: asyncio.Future[Chunks | None], reply: Chunks) -> Awaitable[Chunks | None]:
        async def work() -> Chunks | None:
            await future
            return reply

        return work()

    def _greet(
        self, version: int, correlation_id: int, connection: Connection, frame: memoryview, position: int
    ) -> Reply:
        if version > self.newest_greeting:
            known = [ApiVersion(api_key=18, min_version=0, max_version=self.newest_greeting)]
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=known)
            return encode_response(18, 0, correlation_id, refusal)
        request, _ = decode(ApiVersionsRequest, version, frame, position)
        assert isinstance(request, ApiVersionsRequest)
        self.software.append(request.client_software_name)
        self.connections.append(connection)
        listed = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in self.offered.items()
        ]
        return encode_response(18, version, correlation_id, ApiVersionsResponse(api_keys=listed))


@asynccontextmanager
async def listening(broker: Broker) -> AsyncIterator[tuple[str, int]]:
    server = Server(broker, ServerLimits(), now=real_runtime().clock.monotonic)
    server.pipeline_of = lambda _: 0  # requests overlap
    port = await server.listen(OpenListener(name="PLAINTEXT"), "127.0.0.1", 0)
    try:
        yield "127.0.0.1", port
    finally:
        await server.stop(drain_seconds=0.0)


@asynccontextmanager
async def peers_at(
    address: tuple[str, int] | Callable[[BrokerId], tuple[str, int] | None] | None,
    timeout_s: float = 10.0,
    on_lost: Callable[[BrokerId], None] = lambda _: None,
) -> AsyncIterator[Peers]:
    lookup = address if callable(address) else lambda _: address
    peers = Peers(
        lookup,
        client_id="broker-1",
        now=real_runtime().clock.monotonic,
        request_timeout_s=timeout_s,
        chance=lambda: 0.0,
        on_lost=on_lost,
    )
    try:
        yield peers
    finally:
        await peers.close()


def heartbeat(group: str) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_broker_names_itself_and_speaks_the_highest_common_version() -> None:
    broker = Broker()
    broker.offered[HEARTBEAT] = (0, 3)
    async with listening(broker) as address, peers_at(address) as peers:
        response = await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        assert isinstance(response, HeartbeatResponse)
    assert broker.software == ["odradek-broker"]
    assert broker.versions == [3]


async def test_an_older_greeting_is_spoken_when_the_peer_knows_no_newer_one() -> None:
    broker = Broker()
    broker.newest_greeting = 3
    async with listening(broker) as address, peers_at(address) as peers:
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
    assert broker.software == ["odradek-broker"]


async def test_a_receiver_sees_answers_in_the_newest_version_only() -> None:
    broker = Broker()
    frames: list[bytes] = []

    def receive(frame: memoryview, _: object) -> bool:
        frames.append(bytes(frame))
        return False

    async with listening(broker) as address, peers_at(address) as peers:
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"), receive=receive)
        assert len(frames) == 1
        broker.offered[HEARTBEAT] = (0, 3)
        peers.forget(OTHER)
        response = await peers.send(OTHER, HEARTBEAT, heartbeat("g"), receive=receive)
        assert isinstance(response, HeartbeatResponse)
    assert broker.versions[-1] == 3
    assert len(frames) == 1


async def test_without_a_common_version_the_request_is_not_sent() -> None:
    broker = Broker()
    broker.offered[HEARTBEAT] = (9, 12)
    async with listening(broker) as address, peers_at(address) as peers:
        with pytest.raises(PeerUnreachable, match="speaks no version of Heartbeat"):
            await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        del broker.offered[HEARTBEAT]
        peers.forget(OTHER)
        with pytest.raises(PeerUnreachable, match="speaks no version of Heartbeat"):
            await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
    assert broker.asked == []


async def test_a_connected_lane_sends_within_the_call_and_its_errors_come_with_the_answer() -> None:
    broker = Broker()
    del broker.offered[api_by_name("SyncGroup").key]
    async with listening(broker) as address, peers_at(address) as peers:
        await peers.send(OTHER, HEARTBEAT, heartbeat("first"))
        second = peers.send(OTHER, HEARTBEAT, heartbeat("second"))
        await until(lambda: len(broker.asked) >= 2)
        assert isinstance(await second, HeartbeatResponse)
        assert len(broker.connections) == 1
        refused = peers.send(OTHER, api_by_name("SyncGroup").key, heartbeat("not sent"))
        with pytest.raises(PeerUnreachable, match="speaks no version of SyncGroup"):
            await refused
        peers.forget(OTHER)
        assert isinstance(await peers.send(OTHER, HEARTBEAT, heartbeat("third")), HeartbeatResponse)
        lost = peers.send(OTHER, HEARTBEAT, heartbeat("never"))
        peers.forget(OTHER)
        with pytest.raises(PeerUnreachable, match="stopped, or has another address"):
            await lost
        await peers.close()
        with pytest.raises(PeerUnreachable, match="stopping"):
            await peers.send(OTHER, HEARTBEAT, heartbeat("fourth"))


async def test_those_who_ask_at_once_share_one_connection() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        await asyncio.gather(*(peers.send(OTHER, HEARTBEAT, heartbeat(f"{n}")) for n in range(20)))
        assert len(broker.connections) == 1
        assert broker.asked == [f"{n}" for n in range(20)]


async def test_requests_are_pipelined_on_a_lane_and_lanes_do_not_wait_for_each_other() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        slow = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("later")))
        behind = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("behind")))
        await peers.send(OTHER, HEARTBEAT, heartbeat("other lane"), lane="other")
        while "behind" not in broker.asked:
            await asyncio.sleep(0)
        assert not slow.done()
        assert not behind.done()
        broker.waiting[0].set_result(None)
        await asyncio.gather(slow, behind)
        assert len(broker.connections) == 2


async def test_an_overdue_answer_closes_the_connection_and_the_next_request_makes_another() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        behind = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("never")))
        await asyncio.sleep(0)
        with pytest.raises(PeerUnreachable, match="did not answer Heartbeat in time") as caught:
            await peers.send(OTHER, HEARTBEAT, heartbeat("never"), timeout_s=0.05)
        assert caught.value.sent
        assert not caught.value.refused
        with pytest.raises(PeerUnreachable):
            await behind
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        assert len(broker.connections) == 2


async def test_one_who_no_longer_waits_harms_no_one() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        first = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("first")))
        second = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("second")))
        await asyncio.sleep(0)
        first.cancel()  # it was making the connection
        await second
        third = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("later")))
        while "later" not in broker.asked:
            await asyncio.sleep(0)
        third.cancel()
        broker.waiting[0].set_result(None)
        await peers.send(OTHER, HEARTBEAT, heartbeat("fourth"))
    assert broker.asked == ["second", "later", "fourth"]


async def test_a_port_where_no_one_listens_is_distinguished() -> None:
    async with peers_at(("127.0.0.1", unused_port())) as peers:
        with pytest.raises(PeerUnreachable) as caught:
            await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        assert caught.value.refused
        assert not caught.value.sent


async def test_an_unknown_broker_has_no_address() -> None:
    async with peers_at(None) as peers:
        with pytest.raises(PeerUnreachable, match="no one knows its address"):
            await peers.send(OTHER, HEARTBEAT, heartbeat("g"))


async def test_nonsense_ends_the_connection_with_words() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        with pytest.raises(PeerUnreachable, match="sent what is no answer"):
            await peers.send(OTHER, HEARTBEAT, heartbeat("nonsense"))
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))


async def test_a_forgotten_broker_is_looked_up_again() -> None:
    old, new = Broker(), Broker()
    async with listening(old) as there, listening(new) as elsewhere:
        where = [there]
        async with peers_at(lambda _: where[-1]) as peers:
            waiting = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("never")))
            while not old.asked:
                await asyncio.sleep(0)
            where.append(elsewhere)
            peers.forget(OTHER)
            with pytest.raises(PeerUnreachable, match="has another address"):
                await waiting
            await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
    assert new.asked == ["g"]


async def test_a_lane_that_is_hung_up_is_made_again_and_other_lanes_stay() -> None:
    broker = Broker()
    async with listening(broker) as address, peers_at(address) as peers:
        await peers.send(OTHER, HEARTBEAT, heartbeat("kept"), lane="kept")
        waiting = asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("never"), lane="poll"))
        while "never" not in broker.asked:
            await asyncio.sleep(0)
        peers.hang_up(OTHER, "poll")
        peers.hang_up(OTHER, "unknown")
        with pytest.raises(PeerUnreachable, match="nothing waits"):
            await waiting
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"), lane="poll")
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"), lane="kept")
        assert len(broker.connections) == 3


async def test_closing_ends_those_who_wait_for_a_connection_too() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        async with peers_at(mute.getsockname()) as peers:
            waiting = [asyncio.ensure_future(peers.send(OTHER, HEARTBEAT, heartbeat("g"))) for _ in range(3)]
            for _ in range(10):
                await asyncio.sleep(0)
            await peers.close()
            for waiter in waiting:
                with pytest.raises(PeerUnreachable, match="stopping"):
                    await waiter
            with pytest.raises(PeerUnreachable, match="stopping"):
                await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
    assert len(asyncio.all_tasks()) == 1


async def test_a_connection_that_the_other_side_ended_is_reported_and_one_that_we_ended_is_not() -> None:
    lost: list[BrokerId] = []
    event = asyncio.Event()

    def note(broker: BrokerId) -> None:
        lost.append(broker)
        event.set()

    broker = Broker()
    async with listening(broker) as address, peers_at(address, on_lost=note) as peers:
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        broker.connections[0].close()
        async with asyncio.timeout(PATIENCE_S):
            await event.wait()
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
        peers.forget(OTHER)
        await peers.send(OTHER, HEARTBEAT, heartbeat("g"))
    assert lost == [OTHER]
