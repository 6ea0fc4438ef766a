"""Faults of the simulated network, as the two ends of a connection see them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.runtime.test_network import Recorder

from odradek.testing.sim import Conditions, CrashKind, Host, World

pytestmark = pytest.mark.sim
QUICK = Conditions(spike_rate=0.0, delay_s=(0.001, 0.01), give_up_s=30.0)


class Two:
    """A connection from host `client` to host `server`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client, self.server = world.host("client"), world.host("server")
        self.client.boot()
        self.server.boot()
        self.near: Recorder
        self.far: Recorder

    async def connect(self) -> None:
        accepted: asyncio.Queue[Recorder] = asyncio.Queue()

        def factory() -> Recorder:
            peer = Recorder()
            accepted.put_nowait(peer)
            return peer

        loop = self.world.loop
        await self.server.spawn(loop.create_server(factory, "0.0.0.0", 9092))
        _, self.near = await self.client.spawn(loop.create_connection(Recorder, "server", 9092))
        self.far = await accepted.get()


def run(seed: int, story: Callable[[Two], Awaitable[None]], conditions: Conditions = QUICK) -> None:
    with World(seed, conditions=conditions) as world:

        async def main() -> None:
            two = Two(world)
            await two.connect()
            await story(two)

        world.run(main)


def test_a_one_way_partition_stops_one_way_only() -> None:
    async def story(two: Two) -> None:
        two.world.network.block("client", "server")
        two.near.transport.write(b"lost in the partition")
        two.far.transport.write(b"passes")
        await asyncio.sleep(5)
        assert bytes(two.near.received) == b"passes"
        assert not two.far.received
        two.world.network.heal()
        await asyncio.sleep(5)
        assert bytes(two.far.received) == b"lost in the partition"
        assert not two.near.lost.done()

    run(1, story)


def test_both_ends_give_up_on_a_partition_that_stays() -> None:
    async def story(two: Two) -> None:
        two.world.network.block("server", "client")
        two.near.transport.write(b"arrives, but its acknowledgement does not")
        assert isinstance(await two.near.lost, TimeoutError)
        assert two.far.received
        assert not two.far.lost.done(), "a half-open end that sends nothing learns nothing"
        two.far.transport.write(b"into the void")
        assert isinstance(await two.far.lost, TimeoutError)

    run(1, story)


def test_a_killed_process_is_seen_by_its_peer() -> None:
    async def story(two: Two) -> None:
        two.server.crash(CrashKind.PROCESS_KILL)
        await two.near.lost
        with pytest.raises(ConnectionRefusedError):
            await two.client.spawn(two.world.loop.create_connection(Recorder, "server", 9092))

    run(1, story)


def test_a_host_without_power_leaves_half_open_connections() -> None:
    async def story(two: Two) -> None:
        two.server.crash(CrashKind.POWER_LOSS)
        await asyncio.sleep(1000)
        assert not two.near.lost.done(), "no one said anything"
        two.near.transport.write(b"anyone there?")
        assert isinstance(await two.near.lost, TimeoutError)

    run(1, story)


def test_a_host_that_came_back_resets_what_it_does_not_know() -> None:
    async def story(two: Two) -> None:
        two.server.crash(CrashKind.POWER_LOSS)
        await asyncio.sleep(1)
        two.server.boot()
        await asyncio.sleep(1)
        assert not two.near.lost.done()
        two.near.transport.write(b"remember me?")
        assert isinstance(await two.near.lost, ConnectionResetError)

    run(1, story)


def test_connecting_to_a_host_without_power_times_out() -> None:
    async def story(two: Two) -> None:
        two.server.crash(CrashKind.POWER_LOSS)
        with pytest.raises(TimeoutError):
            await two.client.spawn(two.world.loop.create_connection(Recorder, "server", 9092))

    run(1, story)


def test_reset_connections_end_both_ends_with_an_error() -> None:
    async def story(two: Two) -> None:
        two.world.network.reset_connections(two.server.life.interface)
        assert isinstance(await two.near.lost, ConnectionResetError)
        assert isinstance(await two.far.lost, ConnectionResetError)

    run(1, story)


def test_a_lossy_network_resets_but_never_garbles() -> None:
    payload = bytes(range(256)) * 40
    ends = {"whole": 0, "cut": 0}

    async def story(two: Two) -> None:
        two.near.transport.write(payload)
        two.near.transport.close()
        await two.far.lost
        assert payload.startswith(bytes(two.far.received))
        ends["whole" if bytes(two.far.received) == payload else "cut"] += 1

    for seed in range(30):
        run(seed, story, Conditions(reset_rate=0.05, window_bytes=(512, 2048)))
    assert ends["whole"] > 2
    assert ends["cut"] > 2


def test_reads_are_cut_at_arbitrary_places() -> None:
    sizes: set[int] = set()

    class Measuring(Recorder):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            sizes.add(len(data))

    async def main(world: World, server: Host) -> None:
        await server.spawn(world.loop.create_server(Measuring, "server", 9092))
        _, peer = await world.loop.create_connection(Recorder, "server", 9092)
        for _ in range(200):
            peer.transport.write(b"x" * 100)
            await asyncio.sleep(0.01)

    for seed in range(3):
        with World(seed) as world:
            server = world.host("server")
            server.boot()
            world.run(lambda world=world, server=server: main(world, server))
    assert {1, 2, 3, 100} < sizes
    assert max(sizes) > 100


def test_a_buffer_changed_after_write_is_found_out() -> None:
    async def story(two: Two) -> None:
        two.far.transport.pause_reading()
        filler = bytes(1 << 20)
        two.near.transport.write(filler)
        buffer = bytearray(b"original")
        two.near.transport.write(buffer)
        buffer[:] = b"reused!!"
        two.far.transport.resume_reading()
        await asyncio.sleep(100)
        assert two.far.received.endswith(b"reused!!")

    run(1, story)


def test_an_answer_is_lost_when_the_socket_closes_on_unread_input() -> None:
    async def story(two: Two) -> None:
        two.far.transport.pause_reading()
        two.near.transport.write(b"never read")
        await asyncio.sleep(1)
        two.far.transport.close()
        assert isinstance(await two.near.lost, ConnectionResetError)

    run(1, story)
