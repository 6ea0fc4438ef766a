"""What the log says of brokers that cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S, until

from odradek.client.network.cluster import ClusterClient
from odradek.client.network.connection import BrokerIdentity, MisroutedError
from odradek.client.network.connections import RESTART_S, BrokerConnections
from odradek.client.network.errors import BrokerUnreachableError
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import ErrorCode
from odradek.protocol.messages.metadata.api_versions import ApiVersionsResponse


async def fails_to_connect(links: BrokerConnections, address: Address) -> None:
    with pytest.raises(BrokerUnreachableError):
        await links.get(address)


async def test_a_broker_that_was_there_is_missed_in_the_log_when_it_stays_away(
    broker: Any, clock: Any, chance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    address = Address("127.0.0.1", broker.port)
    links = BrokerConnections(ClientSettings.of(broker.bootstrap, {}), clock, chance)
    with caplog.at_level(logging.WARNING):
        await links.get(address)
        await broker.stop()
        await until(lambda: links.ready(address) is None)
        await fails_to_connect(links, address)
        clock.now += RESTART_S - 0.1
        await fails_to_connect(links, address)
        assert caplog.messages == []
        clock.now += 0.2
        await fails_to_connect(links, address)
        clock.now += RESTART_S
        await fails_to_connect(links, address)
    assert [message.split()[0] for message in caplog.messages] == ["broker_unreachable"]
    await links.close()


async def test_a_broker_that_never_was_there_is_missed_at_once(
    clock: Any, chance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    links = BrokerConnections(ClientSettings.of("127.0.0.1:1", {}), clock, chance)
    with caplog.at_level(logging.WARNING):
        await fails_to_connect(links, Address("127.0.0.1", 1))
        clock.now += RESTART_S
        await fails_to_connect(links, Address("127.0.0.1", 1))
    assert [message.split()[0] for message in caplog.messages] == ["broker_unreachable"]
    await links.close()


async def test_another_broker_at_an_address_is_noticed_once_and_then_taken_as_it_is(
    broker: Any, clock: Any, chance: Any
) -> None:
    def other(asked: Any) -> Any:
        if asked.message.node_id != -1:
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return broker.answer_ApiVersions(asked)

    broker.on["ApiVersions"] = other
    troubles: list[None] = []
    address = Address("127.0.0.1", broker.port)
    settings = ClientSettings.of(broker.bootstrap, {"reconnect_backoff_ms": 0, "reconnect_backoff_max_ms": 0})
    links = BrokerConnections(settings, clock, chance)
    links.identity = lambda asked: BrokerIdentity("c1", 7) if asked == address else None
    links.on_trouble = lambda: troubles.append(None)
    with pytest.raises(MisroutedError, match=r"is not broker 7 of cluster 'c1'") as error:
        await links.get(address)
    assert (error.value.retriable, troubles) == (True, [None])
    assert not (await links.get(address)).closed
    asked = [(request.cluster_id, request.node_id) for request in broker.requests("ApiVersions")]
    assert asked == [("c1", 7), (None, -1)]
    await links.close()


async def test_a_client_says_which_broker_it_means_as_soon_as_it_knows(
    broker: Any, clock: Any, chance: Any
) -> None:
    cluster = ClusterClient(ClientSettings.of(broker.bootstrap, {}), clock, chance)
    cluster.start()
    async with asyncio.timeout(PATIENCE_S):
        await cluster.metadata.refresh(10)
        links = cluster.more_links(lambda: None)
        await links.get(Address("127.0.0.1", broker.port))
    asked = [(request.cluster_id, request.node_id) for request in broker.requests("ApiVersions")]
    assert asked == [(None, -1), ("scripted", 1)]
    await links.close()
    await cluster.close()
