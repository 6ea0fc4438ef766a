"""Requests whose ticket the machine keeps: they end with an answer, or with the machine."""

import asyncio

import pytest
from tests.unit.shards.test_shard import MemoryLog, Words, ready, say

from odradek.model.errors import ErrorCode, KafkaError
from odradek.shards import DeferredReply, Moment, Outcome, Ticket


async def test_a_request_that_waits_for_the_machine_is_not_refused_because_the_log_is_late() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log, patience_seconds=0.0)
    said = shard.execute(say("a"))

    def wait(machine: Words, now: Moment, ticket: Ticket[str]) -> Outcome[None]:
        machine.waiting.append(ticket)
        return Outcome(None)

    response = shard.execute_deferred(wait)
    with pytest.raises(KafkaError, match="not durable within 0 s"):
        await said
    assert not response.done()

    def answer(machine: Words, now: Moment) -> Outcome[None]:
        return Outcome(None, answers=[DeferredReply(machine.waiting.pop(), "now")])

    log.sync()
    answered = shard.execute(answer)
    log.sync()
    await answered
    assert await response == "now"
    shard.close()


async def test_a_deferred_request_is_refused_with_the_machine_that_keeps_it() -> None:
    log = MemoryLog(durable=False)
    shard = await ready(log)
    said = shard.execute(say("a"))

    def wait(machine: Words, now: Moment, ticket: Ticket[str]) -> Outcome[None]:
        machine.waiting.append(ticket)
        return Outcome(None)

    response = shard.execute_deferred(wait)
    await asyncio.sleep(0)
    log.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "others lead"))
    for refused in (said, response):
        with pytest.raises(KafkaError) as lost:
            await refused
        assert lost.value.code is ErrorCode.NOT_COORDINATOR
    shard.close()
