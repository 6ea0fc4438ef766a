"""Writes a snapshot and is killed at a step, once for each line of standard input: `servers service-id step`.

Steps are `METHOD:NUMBER:before` and `METHOD:NUMBER:after`: the call of a client's method with this number. What was sent has
reached the broker before it dies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.unit.sql.service_of_commands import CommandService

from odradek.client.admin.aio import AsyncAdmin
from odradek.client.producer.aio import AsyncProducer
from odradek.client.transactions.service import ProducerTransactions
from odradek.sql.server.command_log import snapshot_records

WATCHED = (
    (AsyncProducer, "init_transactions"),
    (AsyncProducer, "send"),
    (ProducerTransactions, "commit"),
    (AsyncAdmin, "delete_records"),
)


def watch(owner: type, name: str, step: str) -> None:
    """Makes a method kill this process at the step."""
    method, count = getattr(owner, name), 0

    async def watched(client: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal count
        count += 1
        if step == f"{name}:{count}:before":
            os.kill(os.getpid(), signal.SIGKILL)
        called = await method(client, *arguments, **keywords)
        if step == f"{name}:{count}:after":
            if isinstance(client, AsyncProducer) and name == "send":
                await client.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return called

    setattr(owner, name, watched)


async def write_snapshot(servers: str, service_id: str) -> None:
    async with CommandService(servers, service_id, commands_between=1) as service:
        assert service.topic.is_snapshot_due()
        await service.topic.write_snapshot()


def main() -> None:
    snapshot_records.PART_BYTES = 150  # several parts
    for line in sys.stdin:
        servers, service_id, step = line.split()
        child = os.fork()
        if child == 0:
            for owner, name in WATCHED:
                watch(owner, name, step)
            asyncio.run(write_snapshot(servers, service_id))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{service_id} {os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    main()
