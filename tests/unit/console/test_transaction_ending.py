"""A transaction is ended only while it is the open one that was shown: a form that is sent late ends nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from odradek.client.admin.transaction_descriptions import ONGOING, TransactionDescription
from odradek.client.aio import AsyncAdmin
from odradek.console.model.transaction_ending import terminate
from odradek.model.errors import KafkaError


class WrittenCoordinator:
    """A coordinator whose one transaction a test writes."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.fenced: list[str] = []

    async def describe_transactions(self, names: list[str], **_: Any) -> dict[str, TransactionDescription]:
        return {
            name: TransactionDescription(
                transactional_id=name,
                producer_id=7,
                producer_epoch=1,
                state=self.state,
                timeout_ms=60_000,
                start_time_ms=1_000,
                partitions=(),
                coordinator=0,
            )
            for name in names
        }

    async def fence_producers(self, names: list[str], **_: Any) -> None:
        self.fenced += names


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "CompleteCommit", "Empty"])
async def test_a_producer_that_has_ended_its_transaction_meanwhile_is_not_fenced(state: str) -> None:
    coordinator = WrittenCoordinator(state)
    with pytest.raises(KafkaError, match="has ended meanwhile"):
        await terminate(cast(AsyncAdmin, coordinator), "pay", 7, 1_000)
    assert coordinator.fenced == []


async def test_the_open_transaction_that_was_shown_is_ended() -> None:
    coordinator = WrittenCoordinator(ONGOING)
    await terminate(cast(AsyncAdmin, coordinator), "pay", 7, 1_000)
    assert coordinator.fenced == ["pay"]
