"""Producer ids for idempotent producers, handed out from blocks that the registry reserves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.model.ids import ProducerId


class ProducerIds:
    """Never gives an id twice, not even after a crash: a block is durable before its first id is given."""

    def __init__(self, allocate_block: Callable[[], Awaitable[range]]) -> None:
        self._allocate_block = allocate_block
        self._block = iter(range(0))
        self._refilling = asyncio.Lock()

    async def next(self) -> ProducerId:
        async with self._refilling:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate_block())
                producer_id = next(self._block)
            return ProducerId(producer_id)
