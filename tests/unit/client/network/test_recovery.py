"""Clients that bootstrap again: the decision, and what a refresh of the metadata makes of it (KIP-899, KIP-1102)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import TimedOutError
from odradek.client.network.recovery import MetadataRecovery
from odradek.client.settings.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from odradek.model.errors import ConfigError, ErrorCode
from odradek.protocol.messages.metadata.metadata import MetadataResponse
from odradek.runtime.real_clock import SystemClock

HERE = "127.0.0.1:9092"
MakeBroker = Callable[[], Awaitable[Any]]


def recovery_of(**given: Any) -> MetadataRecovery:
    return MetadataRecovery(ClientSettings.of(HERE, given))


@pytest.mark.parametrize(
    "settings", [ProducerSettings, ConsumerSettings, ShareConsumerSettings, AdminSettings]
)
def test_every_client_has_kafkas_defaults(settings: Any) -> None:
    more = {"group_id": "g"} if settings is ShareConsumerSettings else {}
    chosen = settings.of(HERE, more)
    assert chosen.metadata_recovery_strategy == "rebootstrap"
    assert chosen.metadata_recovery_rebootstrap_trigger_ms == 300_000
    arguments = settings.arguments({"bootstrap.servers": HERE, "metadata.recovery.strategy": "NONE"})
    arguments |= more
    del arguments["bootstrap_servers"]
    assert settings.of(HERE, arguments).metadata_recovery_strategy == "NONE"  # as Kafka, in either case


@pytest.mark.parametrize(
    ("name", "value"),
    [("metadata_recovery_strategy", "retry"), ("metadata_recovery_rebootstrap_trigger_ms", -1)],
)
def test_other_values_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        ClientSettings.of(HERE, {name: value})


def test_it_is_due_when_brokers_have_failed_for_the_triggers_time() -> None:
    recovery = recovery_of(metadata_recovery_rebootstrap_trigger_ms=5_000)
    recovery.refresh_began(100.0)
    assert recovery.left_s(101.0) == 4.0
    recovery.broker_failed()
    recovery.refresh_began(103.0)
    assert not recovery.is_due(104.9)
    assert recovery.is_due(105.0)
    recovery.succeeded()
    recovery.refresh_began(200.0)
    assert not recovery.is_due(900.0)  # no broker has failed since


def test_a_broker_may_require_it() -> None:
    recovery = recovery_of()
    recovery.refresh_began(100.0)
    recovery.required()
    assert recovery.is_due(100.0)
    assert (recovery.give_up(), recovery.give_up()) == (True, False)
    recovery.succeeded()
    assert not recovery.is_due(100.0)


def test_without_rebootstrap_nothing_makes_it_due() -> None:
    recovery = recovery_of(metadata_recovery_strategy="none", metadata_recovery_rebootstrap_trigger_ms=1)
    recovery.refresh_began(100.0)
    recovery.broker_failed()
    recovery.required()
    assert not recovery.is_due(1_000.0)
    assert recovery.left_s(1_000.0) is None


def test_without_a_triggers_time_a_broker_has_its_usual_time() -> None:
    recovery = recovery_of(metadata_recovery_rebootstrap_trigger_ms=0)
    recovery.refresh_began(100.0)
    assert recovery.left_s(100.0) is None
    assert not recovery.is_due(100.0)
    recovery.broker_failed()
    assert recovery.is_due(100.0)


@asynccontextmanager
async def cluster_of(old: Any, clock: Any, chance: Any, **given: Any) -> AsyncIterator[ClusterClient]:
    """A client that has bootstrapped at `old`, which names itself as the cluster's only broker."""
    quick = {
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "reconnect_backoff_ms": 0,
        "reconnect_backoff_max_ms": 0,
    }
    cluster = ClusterClient(ClientSettings.of(old.bootstrap, {**quick, **given}), clock, chance)
    cluster.start()
    await cluster.metadata.refresh(20)
    try:
        yield cluster
    finally:
        await cluster.close()


async def moved(old: Any, make_broker: MakeBroker) -> tuple[Any, Any]:
    """Two more brokers: `old` stays what clients bootstrap at, and names the first of them as the cluster's only broker."""
    first, second = await make_broker(), await make_broker()
    for broker in (old, first):
        broker.nodes = {7: first.port}
    second.nodes = {8: second.port}
    return first, second


async def test_the_bootstrap_list_is_asked_when_no_broker_answers(
    broker: Any, make_broker: MakeBroker, clock: Any, chance: Any
) -> None:
    first, second = await moved(broker, make_broker)
    async with cluster_of(broker, clock, chance) as cluster:
        assert list(cluster.image.brokers) == [7]
        broker.nodes = {8: second.port}
        await first.stop()
        for writer in broker.writers:  # the connection to the bootstrap address is gone as well
            writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while list(cluster.image.brokers) != [8]:
                await cluster.metadata.refresh(20)


async def test_with_none_it_is_never_asked_again(broker: Any, make_broker: MakeBroker, chance: Any) -> None:
    first, second = await moved(broker, make_broker)
    async with cluster_of(broker, SystemClock(), chance, metadata_recovery_strategy="none") as cluster:
        broker.nodes = {8: second.port}
        await first.stop()
        for writer in broker.writers:
            writer.close()
        asked = len(broker.asked)
        waiting = asyncio.create_task(cluster.metadata.refresh(20))
        await until(lambda: cluster.metadata.problem is not None)
        assert "metadata.recovery.strategy=none: bootstrap.servers is not asked again" in str(
            cluster.metadata.problem
        )
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        with pytest.raises(TimedOutError, match=r"metadata\.recovery\.strategy=none"):
            await cluster.metadata.refresh(0.2)
        assert len(broker.asked) == asked
        assert list(cluster.image.brokers) == [7]


async def test_a_broker_that_keeps_silent_is_given_up_after_the_triggers_time(
    broker: Any, make_broker: MakeBroker, clock: Any, chance: Any, silence: object
) -> None:
    first, second = await moved(broker, make_broker)
    async with cluster_of(broker, clock, chance, metadata_recovery_rebootstrap_trigger_ms=100) as cluster:
        await cluster.connection(7)
        broker.nodes = {8: second.port}
        first.on["Metadata"] = lambda _: silence
        broker.once["Metadata"].append(lambda _: silence)
        await cluster.metadata.refresh(20)  # far below request.timeout.ms
        assert list(cluster.image.brokers) == [8]


async def test_a_broker_that_requires_it_is_left(
    broker: Any, make_broker: MakeBroker, clock: Any, chance: Any
) -> None:
    first, second = await moved(broker, make_broker)

    def requires(_: Any) -> MetadataResponse:
        return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)

    async with cluster_of(broker, clock, chance) as cluster:
        connection = await cluster.connection(7)
        for writer in broker.writers:
            writer.close()
        await until(lambda: cluster.links.least_loaded() is connection and cluster.links.open_count <= 1)
        broker.nodes = {8: second.port}
        first.on["Metadata"] = requires
        await cluster.metadata.refresh(20)
        assert list(cluster.image.brokers) == [8]
        assert connection.closed


async def test_brokers_that_all_require_it_are_no_end(broker: Any, clock: Any, chance: Any) -> None:
    async with cluster_of(broker, clock, chance) as cluster:

        def requires(_: Any) -> MetadataResponse:
            return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)

        broker.once["Metadata"] += [requires] * 4
        await cluster.metadata.refresh(20)
        assert list(cluster.image.brokers) == [1]


async def test_another_cluster_at_the_same_name_begins_with_an_empty_image(
    broker: Any, make_broker: MakeBroker, clock: Any, chance: Any
) -> None:
    async with cluster_of(broker, clock, chance) as cluster:
        cluster.metadata.want(["t"])
        await cluster.metadata.refresh(20)
        assert "t" in cluster.image.topics
        old = cluster.image.topics["t"]
        broker.leader_epoch = 0  # lower than before: of another cluster it counts

        def answer(asked: Any) -> Any:
            response: Any = broker.answer_Metadata(asked)
            response.cluster_id = "another"
            return response

        broker.on["Metadata"] = answer
        await cluster.metadata.refresh(20)
        assert cluster.image.cluster_id == "another"
        assert cluster.image.topics["t"].partitions[0].leader_epoch == 0 < old.partitions[0].leader_epoch
