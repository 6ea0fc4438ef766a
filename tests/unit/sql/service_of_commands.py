"""A server's command topic with its state, and without an engine: for tests, and for processes that tests kill."""

from __future__ import annotations

from typing import Self

from odradek.model.errors import OdradekError
from odradek.sql.applying import apply
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import Catalog
from odradek.sql.server.command_log.command_topic import CommandTopic
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.state import ServiceState
from odradek.sql.server.command_log.state_format import state_content, state_of


class CommandService:
    """Use it as `async with`: it starts the topic, and closes it."""

    def __init__(
        self, servers: str, service_id: str, commands_between: int = 1_000_000, *, allows_python: bool = False
    ) -> None:
        self.state = ServiceState(catalog=Catalog(allows_python=allows_python))
        self.topic = CommandTopic(servers, service_id, {}, self._apply, self, commands_between)
        self.applied: list[int] = []
        """The offsets of the commands that were applied one by one."""

    async def __aenter__(self) -> Self:
        try:
            await self.topic.start()
        except OdradekError:
            await self.topic.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.topic.close()

    def _apply(self, offset: int, command: SqlCommand) -> None:
        self.applied.append(offset)
        self.state.replay(offset, command)

    async def write(self, text: str) -> int | None:
        """Writes a statement if it changes something. SqlError if it is refused."""

        def decide() -> SqlCommand | None:
            applied = apply(self.state.catalog, parse_one(text), 0)
            return SqlCommand(command_id=f"id/{text}", statement=text) if applied.changes else None

        return await self.topic.write(decide)

    # ---- as the source of snapshots

    @property
    def live_count(self) -> int:
        return self.state.live_count

    def why_none(self) -> str | None:
        return self.state.refused

    async def content(self) -> bytes:
        return state_content(self.state)

    def restore(self, content: bytes) -> None:
        catalog = self.state.catalog
        self.state.restore(state_of(content, allows_python=catalog.allows_python, registry=catalog.registry))
