"""Transactional producers for the tests of this folder."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.scenarios.transactions.transactional_producer import CLASSIC, TransactionalProducer

from odradek.model.errors import ErrorCode


@pytest.fixture
def producer_of(make_batch: Callable[..., bytearray]) -> Callable[..., Awaitable[TransactionalProducer]]:
    async def make(
        wire: Any, name: str = "x", version: int = CLASSIC, **changes: Any
    ) -> TransactionalProducer:
        producer = TransactionalProducer(wire, make_batch, name, version)
        assert await producer.init(**changes) is ErrorCode.NONE
        return producer

    return make
