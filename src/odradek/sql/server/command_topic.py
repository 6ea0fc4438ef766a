"""The command topic (command log): every statement that changes the catalog, in one order for all servers of a service.

A server that wants to write fences all others (they share a transactional id), reads the topic to its end, decides whether the
statement is allowed after all that is there, and commits. So between what it read and what it wrote there is nothing. What was
written is applied only when it is read back: the same code runs after a restart, and on the other servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from odradek.client import FatalTransactionError, NewTopic, TransactionError
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.ensured_topics import ensure_topic_async
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.producer.aio import AsyncProducer
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.real_clock import SystemEntropy
from odradek.sql.server.commands import SqlCommand
from odradek.telemetry import events

_log = events.get("sql")
_TRIES: Final = 8
_POLL_S: Final = 1.0
_BACK_OFF_S: Final = 0.1
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.insync.replicas": "1",
}

Apply = Callable[[int, SqlCommand], None]
"""Applies a command that was read, with its offset. It raises nothing: a command that fails has a status."""
Decide = Callable[[], SqlCommand | None]
"""Returns the command to write, once all commands of the topic are applied; None: write nothing. It may be called again."""


class CommandConflict(OdradekError):
    """Other servers write at the same time."""


class CommandTopic:
    """`apply` is called for each command, in order: those that are there now before `start` returns, later ones by a task."""

    def __init__(self, servers: str, service_id: str, settings: Mapping[str, Any], apply: Apply) -> None:
        """`settings`: of all clients, such as the security ones."""
        self.topic: Final = f"_odradek-sql-{service_id}-commands"
        self._servers = servers
        self._settings = dict(settings)
        self._apply = apply
        self._place = TopicPartition(self.topic, 0)
        self._writer_id = f"odradek-sql-{service_id}"
        self._entropy = SystemEntropy()
        self._offset_of_token: dict[str, int] = {}
        self._applied = 0
        """The offset behind the last record, or marker, that was read."""
        self._moved = asyncio.Condition()
        self._one_writer = asyncio.Lock()
        self._consumer: AsyncConsumer | None = None
        self._following: asyncio.Task[None] | None = None
        self.problem: str | None = None
        """Why the topic cannot be read any more."""

    async def start(self) -> None:
        """Makes the topic if it does not exist, and applies all its commands."""
        async with AsyncAdmin(self._servers, **self._settings) as admin:
            await ensure_topic_async(admin, NewTopic(self.topic, 1, configs=_SETTINGS))
        self._consumer = AsyncConsumer(
            self._servers,
            isolation_level="read_committed",
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            enable_auto_commit=False,
            **self._settings,
        )
        await self._consumer.start()
        await self._consumer.assign([self._place])
        self._consumer.seek(self._place, 0)
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="odradek-sql-commands")
        await self._read_to_end()

    async def close(self) -> None:
        """Idempotent."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError):
                await self._following
            self._following = None
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    async def write(self, decide: Decide) -> int | None:
        """Writes the command that `decide` wants, and returns its offset once it is applied here; None if it wants none.

        CommandConflict when other servers wrote at the same time, again and again.
        """
        async with self._one_writer:
            problem, token = "", self._entropy.uuid().hex
            for tries in range(_TRIES):
                try:
                    return await self._try(decide, token)
                except (FatalTransactionError, TransactionError) as error:
                    problem = str(error)
                    await asyncio.sleep(_BACK_OFF_S * 2**tries * self._entropy.uniform())
            raise CommandConflict(
                f"other servers of this service wrote {_TRIES} times meanwhile: try again ({problem})"
            )

    async def _try(self, decide: Decide, token: str) -> int | None:
        async with AsyncProducer(
            self._servers, transactional_id=self._writer_id, **self._settings
        ) as producer:
            await producer.init_transactions()
            await self._read_to_end()
            if token in self._offset_of_token:  # the answer to the commit of the try before was lost
                return self._offset_of_token[token]
            command = decide()
            if command is None:
                return None
            command = replace(command, token=token)
            async with producer.transaction():
                delivery = await producer.send(
                    self.topic,
                    command.to_bytes(),
                    key=command.command_id.encode(),
                    partition=0,
                )
            offset = (await delivery).offset
        await self.wait_for(offset)
        return offset

    async def wait_for(self, offset: int, timeout_s: float = 30.0) -> None:
        """Waits until the command at `offset` is applied. TimeoutError."""
        async with asyncio.timeout(timeout_s), self._moved:
            await self._moved.wait_for(lambda: self._applied > offset or self.problem is not None)
        self._check()

    async def _read_to_end(self) -> None:
        assert self._consumer is not None
        async with AsyncAdmin(self._servers, **self._settings) as admin:
            ends = await admin.list_offsets({self._place: -1}, isolation=1)
        end = ends[self._place].offset
        if end > 0:
            await self.wait_for(end - 1)

    def _check(self) -> None:
        if self.problem is not None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self.problem)

    async def _follow(self) -> None:
        assert self._consumer is not None
        while True:
            try:
                records = await self._consumer.poll(_POLL_S if self._applied else 0.05)
                for record in records:
                    where = f"{self.topic}-0, offset {record.offset}"
                    command = SqlCommand.from_record(record.key, record.value, where)
                    self._offset_of_token[command.token] = record.offset
                    self._apply(record.offset, command)
                position = await self._consumer.position(self._place)
            except OdradekError as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE:
                    _log.error("sql_commands_unreadable", topic=self.topic, reason=str(error))
                    self.problem = str(error)
                    async with self._moved:
                        self._moved.notify_all()
                    return
                _log.warning("sql_commands_interrupted", topic=self.topic, reason=str(error))
                await asyncio.sleep(_POLL_S)
                continue
            async with self._moved:
                self._applied = position
                self._moved.notify_all()
