"""A fetch that waits, and whose answer needs the disk: another thread reads, and the answer is made once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from odradek.broker.fetch.delayed_fetch import ConsumerWaiting
from odradek.protocol.messages.data.fetch import FetchResponse
from odradek.replication.partition import Partition


class Disk:
    """`answer` begins a read that ends when the test says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.is_read = asyncio.Event()
        self.error: Exception | None = None

    async def answer(self) -> FetchResponse:
        self.begun += 1
        await self.is_read.wait()
        if self.error is not None:
            raise self.error
        return FetchResponse(session_id=7)


def waiting_for(disk: Disk) -> ConsumerWaiting:
    return ConsumerWaiting([], disk.answer, wait_s=60, missing_bytes=1, committed_only=False)


def more(waiting: ConsumerWaiting) -> None:
    waiting.advanced(cast(Partition, None), 10)


async def turns_of_the_loop() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_news_that_come_while_the_disk_is_read_do_not_make_a_second_answer() -> None:
    disk = Disk()
    waiting = waiting_for(disk)
    more(waiting)
    await turns_of_the_loop()
    more(waiting)
    waiting.ended(cast(Any, None))
    disk.is_read.set()
    assert (await waiting.response).session_id == 7
    assert disk.begun == 1


async def test_an_error_of_the_disk_reaches_the_asker() -> None:
    disk = Disk()
    disk.error = OSError("broken")
    waiting = waiting_for(disk)
    more(waiting)
    disk.is_read.set()
    with pytest.raises(OSError, match="broken"):
        await waiting.response


async def test_the_read_ends_with_the_connection_that_asked() -> None:
    disk = Disk()
    waiting = waiting_for(disk)
    more(waiting)
    await turns_of_the_loop()
    waiting.response.cancel()
    before = asyncio.all_tasks()
    await turns_of_the_loop()
    assert asyncio.all_tasks() < before
