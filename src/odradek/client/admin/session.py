"""What every kind of administration stands on: an admin client's life, and how it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from odradek.client.admin.calls import AdminCalls, AlreadyDone
from odradek.client.errors import ClientClosedError
from odradek.client.network.cluster import Cluster
from odradek.client.options import AdminOptions
from odradek.client.settings import AdminSettings
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy


class AdminSession:
    """Who is asked is said by what is administered; retries are those of `AdminCalls`."""

    def __init__(
        self,
        bootstrap_servers: str | list[str] | tuple[str, ...],
        *,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        **settings: Unpack[AdminOptions],
    ) -> None:
        checked = AdminSettings.of(bootstrap_servers, dict(settings))
        self._cluster = Cluster(checked, clock or SystemClock(), entropy or SystemEntropy())
        self._calls = AdminCalls(self._cluster)
        self._patience_s = checked.default_api_timeout_ms / 1000
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @classmethod
    def from_config(cls, config: Mapping[str, object], **more: Any) -> Self:
        """From a mapping with Kafka's names: `{"bootstrap.servers": "..."}`."""
        return cls(**AdminSettings.arguments(config), **more)

    async def start(self) -> None:
        """Begin to work on the running loop; other methods do so by themselves."""
        if self._closed:
            raise ClientClosedError("admin client")
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._cluster.start()

    async def close(self) -> None:
        """Idempotent."""
        if not self._closed:
            self._closed = True
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _each(
        self,
        what: str,
        wanted: Mapping[Any, Any],
        timeout_s: float | None,
        ask: Any,
        by: Any = None,
        ask_broker: Any = None,
        already: AlreadyDone | None = None,
    ) -> Any:
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        by = by or self._calls.by_controller
        return await self._calls.each(what, wanted, limit_s, ask, by, ask_broker=ask_broker, already=already)

    async def _everywhere(self, what: str, timeout_s: float | None, ask_broker: Any) -> dict[int, Any]:
        """What every broker answers."""
        await self.start()
        limit_s = self._patience_s if timeout_s is None else timeout_s
        brokers = dict.fromkeys((await self._cluster.metadata.refresh(limit_s)).brokers)
        told: dict[int, Any] = await self._each(
            what, brokers, timeout_s, None, by=self._calls.by_itself, ask_broker=ask_broker
        )
        return told

    async def _one(self, what: str, timeout_s: float | None, exchange: Any) -> Any:
        await self.start()
        return await self._calls.one(what, self._patience_s if timeout_s is None else timeout_s, exchange)
