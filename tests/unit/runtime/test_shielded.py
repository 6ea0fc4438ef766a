"""Tasks that outlive their waiters."""

import asyncio
import gc
from typing import Any

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.shielded import outcome_of

REFUSAL = KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")


async def finish(gate: asyncio.Event, error: Exception | None) -> str:
    await gate.wait()
    if error is not None:
        raise error
    return "done"


async def test_its_outcome_belongs_to_its_waiter() -> None:
    gate = asyncio.Event()
    gate.set()
    loop = asyncio.get_running_loop()
    assert await outcome_of(loop.create_task(finish(gate, None))) == "done"
    with pytest.raises(KafkaError):
        await outcome_of(loop.create_task(finish(gate, REFUSAL)))


@pytest.mark.parametrize(("error", "reports"), [(None, 0), (REFUSAL, 0), (ZeroDivisionError(), 1)])
async def test_it_goes_on_alone_and_only_mistakes_are_reported(error: Exception | None, reports: int) -> None:
    loop, gate, reported = asyncio.get_running_loop(), asyncio.Event(), []
    loop.set_exception_handler(lambda _, context: reported.append(context))
    task: asyncio.Task[Any] = loop.create_task(finish(gate, error))
    waiting = loop.create_task(outcome_of(task))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not task.done()
    gate.set()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    del task, waiting
    gc.collect()
    loop.set_exception_handler(None)
    assert len(reported) == reports
