"""Users, access rules and quotas, as the principal may see them. Pages share a reading for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, NamedTuple, TypeVar

from odradek.client.admin.delegation_tokens import IssuedToken
from odradek.client.admin.quotas import QuotaEntity
from odradek.client.admin.types import ConfigResource
from odradek.client.aio import AsyncAdmin
from odradek.console.model.snapshot import UNKNOWN
from odradek.model.errors import ErrorCode, KafkaError
from odradek.runtime.ports import Clock
from odradek.security.acl_decision import DECIDING_SETTINGS
from odradek.security.acls import Acl

CALL_S: Final = 10.0
AGE_S: Final = 10.0
_TOKEN_OBSTACLES: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "disabled",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "not_logged_in",
    ErrorCode.UNSUPPORTED_VERSION: "old",
}
T = TypeVar("T")


class SharedReading(Generic[T]):
    """The last result of a call, for `age_s`, or for `share` times what the call took; concurrent callers share one call.
    A failure is not remembered."""

    def __init__(
        self, call: Callable[[], Awaitable[T]], clock: Clock, age_s: float = AGE_S, *, share: float = 0.0
    ) -> None:
        self._call = call
        self._clock = clock
        self._age_s = age_s
        self._share = share
        self._fresh_s = age_s
        self._result: T | None = None
        self._read_s = -age_s
        self._task: asyncio.Task[T] | None = None
        self.read_ms = UNKNOWN
        """The wall clock at the last success."""

    @property
    def last(self) -> T | None:
        """The last result, however old it is; None before the first, and after `forget`."""
        return self._result

    async def get(self) -> T:
        """Returns the result; raises what the call raises."""
        if self._result is not None and self._is_fresh():
            return self._result
        return await asyncio.shield(self._begun())

    async def begin(self) -> None:
        """Has the result read again if it is due, and does not wait for it."""
        if self._result is None or not self._is_fresh():
            self._begun()

    def _is_fresh(self) -> bool:
        return self._clock.monotonic() - self._read_s < self._fresh_s

    def _begun(self) -> asyncio.Task[T]:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._read())
            self._task.add_done_callback(self._is_read)
        return self._task

    def forget(self) -> None:
        """Has the next caller read again: something was changed."""
        self._result = None
        self._task = None

    async def _read(self) -> T:
        began_s = self._clock.monotonic()
        reading = await self._call()
        if self._task is asyncio.current_task():  # else something was changed meanwhile
            self._result, self._read_s, self.read_ms = reading, began_s, self._clock.wall_ms()
            self._fresh_s = max(self._age_s, self._share * (self._clock.monotonic() - began_s))
        return reading

    def _is_read(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # every caller has it, or has left
        if self._task is task:
            self._task = None


class VisibleTokens(NamedTuple):
    """The delegation tokens that a user may see. `obstacle`: why brokers show none: `disabled`, `not_logged_in`, `old`."""

    tokens: tuple[IssuedToken, ...]
    obstacle: str


class AccessReader:
    """Reads who may log in, what they may do, and how much of it. Used on the background loop."""

    def __init__(self, admin: AsyncAdmin, clock: Clock) -> None:
        self._admin = admin
        self.users: Final = SharedReading(self._users, clock)
        self.acls: Final = SharedReading(self._acls, clock)
        self.quotas: Final = SharedReading(self._quotas, clock)
        self.settings: Final = SharedReading(self._settings, clock)
        self.tokens: Final = SharedReading(self._tokens, clock)

    def forget(self) -> None:
        """Has everything read again."""
        for reading in (self.users, self.acls, self.quotas, self.settings, self.tokens):
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

    async def _tokens(self) -> VisibleTokens:
        try:
            tokens = await self._admin.describe_delegation_tokens(timeout_s=CALL_S)
        except KafkaError as error:
            obstacle = _TOKEN_OBSTACLES.get(error.code)
            if obstacle is None:
                raise
            return VisibleTokens((), obstacle)
        return VisibleTokens(tuple(tokens), "")
