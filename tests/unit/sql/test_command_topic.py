"""The command topic: first order for all servers, and nothing written that was decided on an old state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from odradek.client import Producer
from odradek.model.errors import ErrorCode, KafkaError
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.testing import LocalBroker


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with LocalBroker() as broker:
        yield broker.address


class OneServer:
    """Keeps the names that commands have, and writes a name only once."""

    def __init__(self, servers: str, service_id: str) -> None:
        self.names: list[tuple[int, str]] = []
        self.topic = CommandTopic(
            servers, service_id, {}, lambda offset, command: self.names.append((offset, command.statement))
        )

    async def add(self, name: str) -> int | None:
        def decide() -> SqlCommand | None:
            if name in [known for _, known in self.names]:
                return None
            return SqlCommand(command_id=f"stream/{name}/create", statement=name, starting={"t": {0: 5}})

        return await self.topic.write(decide)


async def test_servers_of_a_service_have_the_same_commands_in_the_same_order(servers: str) -> None:
    first, second = (OneServer(servers, "together") for _ in range(2))
    await first.topic.start()
    await second.topic.start()
    try:
        offsets = await asyncio.gather(*(server.add(name) for name in "abc" for server in (first, second)))
        assert sum(offset is not None for offset in offsets) == 3
        last = max(offset for offset in offsets if offset is not None)
        await first.topic.wait_for(last)
        await second.topic.wait_for(last)
        assert first.names == second.names
        assert sorted(name for _, name in first.names) == ["a", "b", "c"]
    finally:
        await first.topic.close()
        await second.topic.close()
    again = OneServer(servers, "together")
    await again.topic.start()
    assert again.names == first.names
    await again.topic.close()


async def test_services_do_not_see_each_other(servers: str) -> None:
    first, second = OneServer(servers, "one"), OneServer(servers, "other")
    await first.topic.start()
    await second.topic.start()
    assert await first.add("x") is not None
    assert await second.add("y") is not None
    assert ([name for _, name in first.names], [name for _, name in second.names]) == (["x"], ["y"])
    await first.topic.close()
    await second.topic.close()


async def test_a_record_that_is_no_command_stops_the_server_with_its_place(servers: str) -> None:
    server = OneServer(servers, "foreign")
    await server.topic.start()
    with Producer(servers) as producer:
        producer.send(server.topic.topic, b"not ours", partition=0)
    with pytest.raises(KafkaError, match="-commands-0, offset 0 is no command") as refused:
        await server.add("x")
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    await server.topic.close()


def test_a_command_of_a_newer_version_is_refused() -> None:
    command = SqlCommand(command_id="c", statement="s")
    newer = command.to_bytes().replace(b'"version": 1', b'"version": 2')
    with pytest.raises(KafkaError, match="upgrade it"):
        SqlCommand.from_record(b"c", newer, "here")
    assert SqlCommand.from_record(b"c", command.to_bytes(), "here") == command
