"""The basis of an admin client: its lifetime, and its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from odradek.client.admin.calls import (
    AdminCalls,
    AlreadyDone,
    Ask,
    AskBroker,
    CallOutcome,
    Exchange,
    Failures,
    Grouped,
    GroupItems,
    Items,
)
from odradek.client.groups.coordinator import GROUP, Coordinator
from odradek.client.groups.offset_store import OffsetStore
from odradek.client.groups.values import GroupMetadata
from odradek.client.network.cancellation import to_its_end
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import ClientClosedError, WrongArgumentError
from odradek.client.network.own_loop import OwnLoop
from odradek.client.settings.settings import AdminSettings
from odradek.client.transactions.prepared import TransactionClient
from odradek.model.errors import KafkaError
from odradek.runtime.ports import Clock, Entropy
from odradek.runtime.real_clock import SystemClock, SystemEntropy

_GROUPS_MAX: Final = 1_024
TIMEOUT_S_MAX: Final = 2_147_483.0
"""The longest timeout that fits into a request's milliseconds (int32)."""
CLOSING_S: Final = 2.0
"""A cancelled `close` has so long to end connections."""
K = TypeVar("K")
V = TypeVar("V")


class AdminSession:
    """The connection of an admin client to its cluster: the resource decides which broker is asked, and
    `AdminCalls` retries. Belongs to one event loop."""

    def __init__(self, settings: AdminSettings, clock: Clock | None, entropy: Entropy | None) -> None:
        self.cluster: Final = ClusterClient(settings, clock or SystemClock(), entropy or SystemEntropy())
        self.calls: Final = AdminCalls(self.cluster)
        self.transactions: Final = TransactionClient(self.cluster, settings.request_timeout_ms / 1000)
        self._groups: dict[str, Coordinator] = {}
        self._api_timeout_s = settings.default_api_timeout_ms / 1000
        self._loop = OwnLoop("odradek-admin")
        self._closed = False

    async def start(self) -> None:
        """Begins to work, on the running event loop. Idempotent. Raises ClientClosedError after `close`."""
        if self._closed:
            raise ClientClosedError("admin client")
        if self._loop.begin():
            self.cluster.start()

    async def close(self) -> None:
        """Closes the connections. Idempotent."""
        if self._closed:
            return
        if not self._loop.is_gone:
            self._loop.check()
            self._closed = True
            await to_its_end(self.cluster.close(), grace_s=CLOSING_S)
        self._closed = True

    def limit_s(self, timeout_s: float | None) -> float:
        """Returns the time that a call may take, in seconds: at most the largest value of a request's field
        (24 days).

        Raises WrongArgumentError for a number below 0 and for one that is no number.
        """
        if timeout_s is None:
            return self._api_timeout_s
        if not timeout_s >= 0:  # so that NaN is refused
            raise WrongArgumentError(f"timeout_s must be 0 or more seconds, not {timeout_s}")
        return min(timeout_s, TIMEOUT_S_MAX)

    def coordinator_of(self, group_id: str) -> Coordinator:
        """Returns the group's coordinator, the same object each time, since it remembers its broker."""
        coordinator = self._groups.pop(group_id, None) or Coordinator(self.cluster, group_id, GROUP)
        self._groups[group_id] = coordinator
        if len(self._groups) > _GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        return coordinator

    async def by_group(self, items: Items, timeout_s: float) -> Grouped:
        """Groups items, whose keys are ids of groups, by the groups' coordinators."""
        return await self.calls.by_coordinator(GROUP, items, timeout_s)

    async def offsets_of(self, group_id: str, limit_s: float) -> OffsetStore:
        """Returns the offsets of a group, as one that is no member of it sees them."""
        await self.start()
        await self.cluster.retrying("connecting", limit_s, lambda _: self.cluster.connection())
        no_member = GroupMetadata(group_id=group_id)
        return OffsetStore(
            self.cluster, self.coordinator_of(group_id), who=lambda: no_member, fenced=lambda code: None
        )

    async def each(
        self,
        what: str,
        wanted: Items,
        timeout_s: float | None,
        ask: Ask | None,
        by: GroupItems | None = None,
        ask_broker: AskBroker | None = None,
        already: AlreadyDone | None = None,
    ) -> dict[Any, Any]:
        """Asks about several things, each of the broker that `by` names: by default the controller."""
        await self.start()
        by = by or self.calls.by_controller
        limit_s = self.limit_s(timeout_s)
        return await self.calls.each(what, wanted, limit_s, ask, by, ask_broker=ask_broker, already=already)

    async def everywhere(self, what: str, timeout_s: float | None, ask_broker: AskBroker) -> dict[int, Any]:
        """Returns the answer of every broker."""
        await self.start()
        brokers = dict.fromkeys((await self.cluster.metadata.refresh(self.limit_s(timeout_s))).brokers)
        answers: dict[int, object] = await self.each(
            what, brokers, timeout_s, None, by=self.calls.by_itself, ask_broker=ask_broker
        )
        return answers

    async def together(self, what: str, calls: Mapping[K, Coroutine[object, None, V]]) -> dict[K, V]:
        """Run the calls at the same time, all to their end; what some of them raised is raised as `Failures` has it."""
        outcomes = await asyncio.gather(*calls.values(), return_exceptions=True)
        results: dict[K, V] = {}
        errors: dict[K, KafkaError] = {}  # stored-error: raised below, once
        for key, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, KafkaError):
                errors[key] = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                results[key] = outcome
        if len(calls) == 1 and errors:
            raise next(iter(errors.values()))
        return Failures(what, errors).raise_or(results)

    async def one(self, what: str, timeout_s: float | None, exchange: Exchange) -> CallOutcome:
        """Asks any broker."""
        await self.start()
        return await self.calls.one(what, self.limit_s(timeout_s), exchange)
