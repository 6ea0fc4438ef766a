"""Users, access rules and quotas, as the principal may see them. Pages share a reading for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from odradek.client.admin.quotas import QuotaEntity
from odradek.client.admin.types import ConfigResource
from odradek.client.aio import AsyncAdmin
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.errors import KafkaError
from odradek.runtime.ports import Clock
from odradek.security.acl_decision import DECIDING_SETTINGS
from odradek.security.acls import Acl

CALL_S: Final = 10.0
AGE_S: Final = 10.0
T = TypeVar("T")


class SharedReading(Generic[T]):
    """The last result of a call, for `AGE_S`; concurrent callers share one call. A failure is not remembered."""

    def __init__(self, call: Callable[[], Awaitable[T]], clock: Clock, age_s: float = AGE_S) -> None:
        self._call = call
        self._clock = clock
        self._age_s = age_s
        self._result: T | None = None
        self._read_s = -age_s
        self._task: asyncio.Task[T] | None = None
        self.read_ms = UNKNOWN
        """The wall clock at the last success."""

    async def get(self) -> T:
        """Returns the result; raises what the call raises."""
        if self._result is not None and self._clock.monotonic() - self._read_s < self._age_s:
            return self._result
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read())
            self._task.add_done_callback(self._is_read)
        return await asyncio.shield(self._task)

    def forget(self) -> None:
        """Has the next caller read again: something was changed."""
        self._result = None
        self._task = None

    async def _read(self) -> T:
        began_s = self._clock.monotonic()
        reading = await self._call()
        if self._task is asyncio.current_task():  # else something was changed meanwhile
            self._result, self._read_s, self.read_ms = reading, began_s, self._clock.wall_ms()
        return reading

    def _is_read(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # every caller has it, or has gone
        if self._task is task:
            self._task = None


class AccessReader:
    """Reads who may log in, what they may do, and how much of it. Used on the background loop."""

    def __init__(self, admin: AsyncAdmin, clock: Clock) -> None:
        self._admin = admin
        self.users: Final = SharedReading(self._users, clock)
        self.acls: Final = SharedReading(self._acls, clock)
        self.quotas: Final = SharedReading(self._quotas, clock)
        self.settings: Final = SharedReading(self._settings, clock)

    def forget(self) -> None:
        """Has everything read again."""
        for reading in (self.users, self.acls, self.quotas, self.settings):
            reading.forget()

    async def _users(self) -> dict[str, dict[str, int]]:
        return await self._admin.describe_users(timeout_s=CALL_S)

    async def _acls(self) -> list[Acl]:
        return sorted(await self._admin.describe_acls(timeout_s=CALL_S))

    async def _quotas(self) -> dict[QuotaEntity, dict[str, float]]:
        return await self._admin.describe_quotas(timeout_s=CALL_S)

    async def _settings(self) -> tuple[dict[str, str] | None]:
        """Returns the brokers' settings that decisions depend on, in a tuple; None in it where they are not shown."""
        cluster = await self._admin.describe_cluster(timeout_s=CALL_S)
        broker = ConfigResource.broker(cluster.controller_id)
        try:
            entries = (await self._admin.describe_configs([broker], timeout_s=CALL_S))[broker]
        except KafkaError as error:
            if error.retriable:
                raise
            return (None,)
        return ({key: entries[key].value or "" for key in DECIDING_SETTINGS if key in entries},)
