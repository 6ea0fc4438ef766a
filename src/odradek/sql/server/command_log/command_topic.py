"""The command topic (command log): every statement that changes the catalog, in one order for all servers of a service.

A server that wants to write fences all others (they share a transactional id), reads the topic to its end, decides whether the
statement is allowed after all that is there, and commits. So between what it read and what it wrote there is nothing. What was
written is applied only when it is read back: the same code runs after a restart, and on the other servers.

A snapshot is written in the same way, when there are enough commands since the last one. So it holds the effect of exactly the
commands before it. Then all that is older than the last snapshot but one is deleted. A server that starts begins with the last
snapshot that it can use, or with the first command while nothing has been deleted (decision 0086).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from odradek.client import FatalTransactionError, NewTopic, TransactionError
from odradek.client.admin.aio import AsyncAdmin
from odradek.client.admin.ensured_topics import ensure_topic_async
from odradek.client.consumer.aio import AsyncConsumer
from odradek.client.producer.aio import AsyncProducer
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.runtime.real_clock import SystemEntropy
from odradek.sql.server.command_log.commands import SqlCommand
from odradek.sql.server.command_log.snapshot_records import (
    KEY,
    SnapshotParts,
    SnapshotUnreadable,
    StoredSnapshot,
    content_of,
    snapshot_records,
)
from odradek.telemetry import events

_log = events.get("sql")
_TRIES: Final = 8
_POLL_S: Final = 1.0
_READ_S: Final = 30.0
_BACK_OFF_S: Final = 0.1
_EARLIEST: Final = -2
_COMMANDS_BETWEEN: Final = 500
"""The fewest commands between two snapshots; there are also at least as many as the first one holds objects."""
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


class SnapshotSource(Protocol):
    """The state that commands are applied to, as a snapshot holds it."""

    @property
    def live_count(self) -> int:
        """The number of objects that a snapshot would hold."""

    def why_none(self) -> str | None:
        """Returns why this server may not write a snapshot; None: it may."""

    async def content(self) -> bytes:
        """Returns the state as it is at the call."""

    def restore(self, content: bytes) -> None:
        """Puts the state of a content in place of the present one. SnapshotUnreadable: the present one stays."""


@dataclass(frozen=True, slots=True)
class _StoredRecord:
    offset: int
    key: bytes | None
    value: bytes | None


class _Moved(Exception):
    """The error of a read whose next records were deleted: another server wrote a snapshot."""


class CommandConflict(OdradekError):
    """The error where other servers write to the command topic faster than this one can follow."""


class CommandTopic:
    """The command topic of a service, read and written.

    `apply` is called for each command, in order: those that are there now before `start` returns, later ones by a task.
    """

    def __init__(
        self,
        servers: str,
        service_id: str,
        settings: ClientSettings,
        apply: Apply,
        snapshots: SnapshotSource | None = None,
        commands_between: int = _COMMANDS_BETWEEN,
    ) -> None:
        """`settings`: of all clients, such as the security ones. `snapshots`: None: none are written, and none can be used."""
        self.topic: Final = f"_odradek-sql-{service_id}-commands"
        self._servers = servers
        self._settings = dict(settings)
        self._apply = apply
        self._partition = TopicPartition(self.topic, 0)
        self._writer_id = f"odradek-sql-{service_id}"
        self._entropy = SystemEntropy()
        self._snapshots = snapshots
        self._commands_between = commands_between
        self._parts = SnapshotParts()
        self._usable: list[StoredSnapshot] = []
        """The last two whole snapshots, without their contents."""
        self._last_command = -1
        """The offset of the last command that was read."""
        self._count_since = 0
        """The number of commands since the last whole snapshot."""
        self._objects_then = 0
        """The number of objects in that snapshot."""
        self._writing_snapshot: asyncio.Task[None] | None = None
        self._awaited_token = ""
        self._awaited_offset: int | None = None
        """The offset of the command with the awaited token: the answer to its commit may be lost."""
        self._applied = 0
        """The offset after the last record, or marker, that was read."""
        self._moved = asyncio.Condition()
        self._one_writer = asyncio.Lock()
        self._consumer: AsyncConsumer | None = None
        self._following: asyncio.Task[None] | None = None
        self.problem: str | None = None
        """Why the topic cannot be read any more."""

    async def start(self) -> None:
        """Makes the topic if it does not exist, and applies its newest snapshot and the commands after it.

        KafkaError CORRUPT_MESSAGE if commands were deleted, and no snapshot that is left can be used.
        """
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
        await self._consumer.assign([self._partition])
        await self._load()
        self._following = asyncio.get_running_loop().create_task(self._follow(), name="odradek-sql-commands")
        await self._read_to_end()
        self._snapshot_soon()

    async def close(self) -> None:
        """Stops reading and writing. A snapshot that is being written is given up. Idempotent."""
        for task in (self._writing_snapshot, self._following):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._writing_snapshot = self._following = None
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    async def write(self, decide: Decide) -> int | None:
        """Writes the command that `decide` wants, and returns its offset once it is applied here; None if it wants none.

        CommandConflict when other servers wrote at the same time, again and again.
        """
        async with self._one_writer:
            problem = ""
            self._awaited_token, self._awaited_offset = self._entropy.uuid().hex, None
            for tries in range(_TRIES):
                try:
                    offset = await self._try(decide)
                    self._snapshot_soon()
                    return offset
                except (FatalTransactionError, TransactionError) as error:
                    problem = str(error)
                    await asyncio.sleep(_BACK_OFF_S * 2**tries * self._entropy.uniform())
            raise CommandConflict(
                f"other servers of this service wrote {_TRIES} times meanwhile: try again ({problem})"
            )

    async def _try(self, decide: Decide) -> int | None:
        async with self._producer() as producer:
            await producer.init_transactions()
            await self._read_to_end()
            if self._awaited_offset is not None:  # the answer to the commit of the try before was lost
                return self._awaited_offset
            command = decide()
            if command is None:
                return None
            command = replace(command, token=self._awaited_token)
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
            ends = await admin.list_offsets({self._partition: -1}, isolation=1)
        end = ends[self._partition].offset
        if end > 0:
            await self.wait_for(end - 1)

    def _check(self) -> None:
        if self.problem is not None:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self.problem)

    def _producer(self) -> AsyncProducer:
        return AsyncProducer(self._servers, transactional_id=self._writer_id, **self._settings)

    # ---- reading

    async def _load(self) -> None:
        """Reads what the topic has now, and applies the newest usable snapshot and the commands after it."""
        for tries in range(_TRIES):
            try:
                begin, records = await self._read_all()
                if begin < self._applied:
                    raise KafkaError(
                        ErrorCode.CORRUPT_MESSAGE,
                        f"{self.topic}-0 has lost records: this server has read it to offset {self._applied}",
                    )
                return self._begin_with(begin, records)
            except _Moved:
                await asyncio.sleep(_BACK_OFF_S * 2**tries * self._entropy.uniform())
        raise CommandConflict(f"{self.topic} is shortened faster than it can be read: start the server again")

    async def _read_all(self) -> tuple[int, list[_StoredRecord]]:
        """Returns the first offset, and all committed records."""
        assert self._consumer is not None
        async with AsyncAdmin(self._servers, **self._settings) as admin:
            begins = await admin.list_offsets({self._partition: _EARLIEST})
            ends = await admin.list_offsets({self._partition: -1}, isolation=1)
        begin, end = begins[self._partition].offset, ends[self._partition].offset
        self._consumer.seek(self._partition, begin)
        records: list[_StoredRecord] = []
        try:
            async with asyncio.timeout(_READ_S) as patience:
                while await self._consumer.position(self._partition) < end:
                    records += await self._polled()
                    patience.reschedule(asyncio.get_running_loop().time() + _READ_S)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{self.topic}-0 cannot be read to its end: no record for {_READ_S:g} s",
            ) from None
        return begin, records

    async def _polled(self) -> list[_StoredRecord]:
        """Returns the next records. Raises _Moved if they were deleted."""
        assert self._consumer is not None
        try:
            polled = await self._consumer.poll(_POLL_S if self._applied else 0.05)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _Moved from None
            raise
        return [_StoredRecord(record.offset, record.key, record.value) for record in polled]

    def _begin_with(self, begin: int, records: Sequence[_StoredRecord]) -> None:
        """Applies the newest snapshot that can be used, and the commands after it. KafkaError CORRUPT_MESSAGE if that is not
        possible: nothing is applied then.
        """
        stored = list(self._stored_snapshots(records))
        problems = []
        for snapshot in reversed(stored):
            problem = self._restored(snapshot)
            if problem is None:
                start = snapshot.last_offset + 1
                break
            problems.append(problem)
            _log.warning(
                "sql_snapshot_refused", topic=self.topic, offset=snapshot.first_offset, reason=problem
            )
        else:
            start = begin
            if begin > 0:
                reason = "; ".join(problems) or "it has no snapshot"
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.topic}-0 begins at offset {begin}, and nothing holds the commands before: {reason}."
                    " Restore the topic from a backup, or choose another --service-id",
                )
        self._parts, self._usable, self._count_since, self._objects_then = SnapshotParts(), [], 0, 0
        for snapshot in stored:
            if snapshot.problem is None and snapshot.last_offset < start:
                self._note(snapshot)
        for record in records:
            if record.offset >= start and record.key != KEY:
                self._receive(record)

    def _stored_snapshots(self, records: Sequence[_StoredRecord]) -> Iterator[StoredSnapshot]:
        """Yields the snapshots among records, those with a problem, too, in order."""
        parts, last_command = SnapshotParts(), None
        for record in records:
            if record.key != KEY:
                last_command = record.offset
                unfinished = parts.rest()
                if unfinished is not None:
                    yield unfinished
                continue
            snapshot = parts.add(record.offset, record.value)
            if snapshot is not None:
                yield snapshot if last_command is None else snapshot.checked(last_command)
        unfinished = parts.rest()
        if unfinished is not None:
            yield unfinished

    def _restored(self, snapshot: StoredSnapshot) -> str | None:
        """Restores a snapshot; returns why that is not possible, in one line."""
        where = f"the snapshot at {self.topic}-0, offset {snapshot.first_offset}"
        if self._snapshots is None:
            return f"{where} is not for this reader"
        try:
            self._snapshots.restore(content_of(snapshot))
        except SnapshotUnreadable as error:
            return f"{where} {error}"
        self._last_command = snapshot.after
        return None

    def _receive(self, record: _StoredRecord) -> None:
        """Applies a command, or notes a snapshot. KafkaError CORRUPT_MESSAGE for another record."""
        if record.key == KEY:
            snapshot = self._parts.add(record.offset, record.value)
            if snapshot is not None:
                self._note(snapshot.checked(self._last_command))
            return
        where = f"{self.topic}-0, offset {record.offset}"
        command = SqlCommand.from_record(record.key, record.value, where)
        if command.token == self._awaited_token:
            self._awaited_offset = record.offset
        self._last_command = record.offset
        self._count_since += 1
        self._apply(record.offset, command)

    def _note(self, snapshot: StoredSnapshot) -> None:
        if snapshot.problem is not None:
            where = f"the snapshot at {self.topic}-0, offset {snapshot.first_offset}"
            _log.warning("sql_snapshot_refused", topic=self.topic, reason=f"{where} {snapshot.problem}")
            return
        self._usable = [*self._usable[-1:], replace(snapshot, content=b"")]
        self._count_since = 0
        self._objects_then = 0 if self._snapshots is None else self._snapshots.live_count

    async def _follow(self) -> None:
        assert self._consumer is not None
        is_behind = False
        while True:
            try:
                if is_behind:
                    await self._load()
                    is_behind = False
                else:
                    for record in await self._polled():
                        self._receive(record)
                position = await self._consumer.position(self._partition)
            except _Moved:
                _log.info("sql_commands_skipped", topic=self.topic, reason="a snapshot has taken their place")
                is_behind = True
                continue
            except OdradekError as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.CORRUPT_MESSAGE:
                    await self._stop_reading(str(error))
                    return
                _log.warning("sql_commands_interrupted", topic=self.topic, reason=str(error))
                await asyncio.sleep(_POLL_S)
                continue
            async with self._moved:
                self._applied = position
                self._moved.notify_all()

    async def _stop_reading(self, problem: str) -> None:
        _log.error("sql_commands_unreadable", topic=self.topic, reason=problem)
        self.problem = problem
        async with self._moved:
            self._moved.notify_all()

    # ---- snapshots

    def is_snapshot_due(self) -> bool:
        """Whether there are as many commands since the last snapshot as it holds objects, and not just a few."""
        return self._snapshots is not None and self._count_since >= max(
            self._commands_between, self._objects_then
        )

    def _snapshot_soon(self) -> None:
        if self.is_snapshot_due() and (self._writing_snapshot is None or self._writing_snapshot.done()):
            self._writing_snapshot = asyncio.get_running_loop().create_task(
                self._try_snapshot(), name="odradek-sql-snapshot"
            )

    async def _try_snapshot(self) -> None:
        try:
            await self.write_snapshot()
        except Exception as error:  # noqa: BLE001 - the root of a task: the server runs without the snapshot
            _log.warning("sql_snapshot_failed", topic=self.topic, reason=f"{type(error).__name__}: {error}")

    async def write_snapshot(self) -> StoredSnapshot | None:
        """Writes a snapshot if one is due, and deletes what is before the one before it. Returns None if it writes none.

        TransactionError if another server wrote meanwhile: then nothing was written.
        """
        source = self._snapshots
        async with self._one_writer:
            if source is None or not self.is_snapshot_due():
                return None
            if source.why_none() is not None:
                _log.warning("sql_snapshot_left_out", topic=self.topic, reason=source.why_none())
                return None
            async with self._producer() as producer:
                await producer.init_transactions()
                await self._read_to_end()
                if not self.is_snapshot_due() or source.why_none() is not None:
                    return None  # another server was faster, or wrote what this one refuses
                after, content = self._last_command, await source.content()
                values = await asyncio.to_thread(snapshot_records, self._entropy.uuid().hex, content, after)
                async with producer.transaction():
                    sent = [await producer.send(self.topic, value, key=KEY, partition=0) for value in values]
                offsets = [(await delivery).offset for delivery in sent]
            await self.wait_for(offsets[-1])
        _log.info("sql_snapshot_written", topic=self.topic, offset=offsets[0], bytes=sum(map(len, values)))
        await self._delete_before_snapshots()
        return StoredSnapshot(first_offset=offsets[0], last_offset=offsets[-1], after=after)

    async def _delete_before_snapshots(self) -> None:
        """Deletes the records before the older one of the last two whole snapshots."""
        if len(self._usable) < 2:
            return
        first_offset = self._usable[0].first_offset
        try:
            async with AsyncAdmin(self._servers, **self._settings) as admin:
                await admin.delete_records({self._partition: first_offset})
        except OdradekError as error:
            _log.warning("sql_commands_not_deleted", topic=self.topic, before=first_offset, reason=str(error))
            return
        _log.info("sql_commands_deleted", topic=self.topic, before=first_offset)
