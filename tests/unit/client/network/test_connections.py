"""What the log says of brokers that cannot be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from odradek.client.errors import BrokerUnreachableError
from odradek.client.network.address import Address
from odradek.client.network.connections import RESTART_S, BrokerConnections
from odradek.client.settings import ClientSettings


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
        async with asyncio.timeout(20):
            while links.ready(address) is not None:
                await asyncio.sleep(0)
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
