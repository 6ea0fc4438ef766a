"""Broker processes on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json

import pytest
from benchmarks.odradek_node import BrokerDidNotStartError, OdradekNode

from odradek import Consumer, Producer
from odradek.cli.main import main

KAFKAS_EXAMPLE = {
    "broker.id": "0",
    "zookeeper.connection.timeout.ms": "18000",
    "zookeeper.session.timeout.ms": "1500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture
def start_broker(tmp_path):
    """`start_broker(connect, **settings)` starts a broker process; brokers of one id share their data."""
    started: list[OdradekNode] = []

    def start(connect: str, *, directory: str = "broker", **settings: str) -> OdradekNode:
        broker_settings = {**KAFKAS_EXAMPLE, "zookeeper.connect": connect, **settings}
        node = OdradekNode(settings=broker_settings, directory=tmp_path / directory)
        started.append(node)
        return node.start()

    yield start
    for node in started:
        node.stop()


def _produced(node: OdradekNode, *values: bytes) -> None:
    with Producer(node.bootstrap) as producer:
        for value in values:
            producer.send("flights", value).result()


def _consumed(node: OdradekNode, group: str, count: int) -> list[bytes]:
    results: list[bytes] = []
    with Consumer(node.bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["flights"])
        while len(results) < count:
            results += [record.value for record in consumer.poll(timeout_s=10)]
    return results


async def test_kafkas_settings_for_zookeeper_run_a_broker_that_finds_its_data_again(
    zookeeper, chroot, start_broker, open_registry
) -> None:
    connect = zookeeper.address + chroot
    node = await asyncio.to_thread(start_broker, connect)
    await asyncio.to_thread(_produced, node, b"1", b"2")
    registry = await open_registry(connect)
    assert await registry.children("/brokers/ids") == ["0"]
    assert json.loads((await registry.get("/controller")).data) == {"broker": 0}
    assert "flights" in await registry.children("/topics")
    await asyncio.to_thread(node.stop)
    await registry.sync()
    assert await registry.children("/brokers/ids") == []
    again = await asyncio.to_thread(start_broker, connect)
    await asyncio.to_thread(_produced, again, b"3")
    assert await asyncio.to_thread(_consumed, again, "board", 3) == [b"1", b"2", b"3"]
    assert "zookeeper.connect" not in node.log_file.read_text(), "no warning"


async def test_a_broker_whose_session_expired_comes_back_as_another_incarnation(
    zookeeper, chroot, start_broker, open_registry, relay
) -> None:
    cable = await relay(zookeeper.address)
    node = await asyncio.to_thread(start_broker, cable.address + chroot)
    await asyncio.to_thread(_produced, node, b"1")
    registry = await open_registry(zookeeper.address + chroot)
    changed = asyncio.Event()
    registry.watch("/brokers/ids", changed.set)

    async def until(names: list[str]) -> None:
        async with asyncio.timeout(30):
            while await registry.children("/brokers/ids") != names:
                await changed.wait()
                changed.clear()

    await until(["0"])
    first = (await registry.get("/brokers/ids/0")).created
    await cable.cut()
    await until([])
    await cable.heal()
    await until(["0"])
    assert (await registry.get("/brokers/ids/0")).created > first
    await asyncio.to_thread(_produced, node, b"2")
    assert await asyncio.to_thread(_consumed, node, "board", 2) == [b"1", b"2"]
    await asyncio.to_thread(node.stop)  # while this loop moves what it says to ZooKeeper


async def test_a_broker_serves_while_zookeeper_is_away(own_zookeeper, start_broker) -> None:
    patient = {"zookeeper.session.timeout.ms": "30000"}
    node = await asyncio.to_thread(lambda: start_broker(own_zookeeper.address + "/x", **patient))
    await asyncio.to_thread(_produced, node, b"1")
    assert await asyncio.to_thread(_consumed, node, "board", 1) == [b"1"]
    await asyncio.to_thread(own_zookeeper.stop)
    await asyncio.to_thread(_produced, node, b"2")
    await asyncio.to_thread(own_zookeeper.start)
    await asyncio.to_thread(_produced, node, b"3")
    assert await asyncio.to_thread(_consumed, node, "other", 3) == [b"1", b"2", b"3"]


async def test_two_brokers_with_one_id_are_not_let_in(zookeeper, chroot, start_broker) -> None:
    connect = zookeeper.address + chroot
    await asyncio.to_thread(start_broker, connect)
    with pytest.raises(BrokerDidNotStartError) as caught:
        await asyncio.to_thread(lambda: start_broker(connect, directory="another"))
    assert "0" in str(caught.value).splitlines()[-1]
    assert "Traceback" not in str(caught.value)


async def test_a_broker_is_not_let_into_a_zookeeper_that_lost_its_cluster(
    own_zookeeper, start_broker
) -> None:
    connect = own_zookeeper.address + "/x"
    node = await asyncio.to_thread(start_broker, connect)
    await asyncio.to_thread(_produced, node, b"1")
    await asyncio.to_thread(node.stop)
    await asyncio.to_thread(own_zookeeper.stop)
    own_zookeeper.wipe()
    await asyncio.to_thread(own_zookeeper.start)
    with pytest.raises(BrokerDidNotStartError) as caught:
        await asyncio.to_thread(start_broker, connect)
    assert "cluster" in str(caught.value).splitlines()[-1]
    assert "Traceback" not in str(caught.value)


def test_the_doctor_looks_at_zookeeper_and_makes_nothing_there(
    zookeeper, chroot, start_broker, capsys, tmp_path
) -> None:
    connect = zookeeper.address + chroot

    def finding_of(where: str) -> str:
        pairs = ("--set", f"zookeeper.connect={where}", "--set", "zookeeper.connection.timeout.ms=2000")
        main(["doctor", "--data", str(tmp_path / "nothing"), "--listen", "127.0.0.1:0", *pairs])
        return next(
            line for line in capsys.readouterr().out.splitlines() if "zookeeper" in line.split(":")[0]
        )

    for _ in range(2):
        assert finding_of(connect) == f"ok    zookeeper {connect}: reached; no cluster there yet"
    start_broker(connect)
    assert finding_of(connect).endswith("brokers that live: 0")
    assert finding_of("127.0.0.1:1/x").startswith(
        "fail  zookeeper 127.0.0.1:1/x: cannot reach ZooKeeper at 127.0.0.1:1"
    )
