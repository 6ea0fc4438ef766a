"""Runs a member's core (`member.MemberCore`) on the event loop: sends what is due, passes on the outcome, and shows the
user's side what it has to do (`handover`).

Requests of the group go on connections of their own: JoinGroup is answered when the whole group has joined, and answers
come in the order of requests. Leaving takes another way, because it must not wait for a join.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from odradek.client.groups.coordinator import Coordinator
from odradek.client.groups.member import MemberCore, MemberRequest
from odradek.client.groups.values import Subscription
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import ClientBrokenError, explain
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.telemetry import events

_log = events.get("client")

_MISSING_TOPIC_PAUSE_S: Final = 1.0
LEAVING_S: Final = 5.0
"""The seconds for which a member that leaves in the background tries to notify the group."""


class GroupMembership:
    """The membership of one consumer. Everything happens on the loop, but other threads may read attributes."""

    def __init__(
        self,
        member: MemberCore,
        cluster: ClusterClient,
        coordinator: Coordinator,
        *,
        on_change: Callable[[], None],
    ) -> None:
        self.member: Final = member
        self._cluster = cluster
        self._coordinator = coordinator
        self._on_change = on_change
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._missing_timer: asyncio.TimerHandle | None = None
        self.links: Final = cluster.more_links(self.turn)
        self._active = False
        self._shown: tuple[object, object] = (None, None)
        self._failure: ErrorValue[Exception] | None = None

    @property
    def failure(self) -> Exception | None:
        """The error that broke the service, a bug of ours; None without one. A new exception each time."""
        return self._failure.exception() if self._failure is not None else None

    def subscribe(self, subscription: Subscription) -> None:
        self._active = True
        self.member.subscribe(subscription, self._now())
        self._want_topics()
        self._learn()
        self.turn()

    async def leave(self, timeout_s: float) -> None:
        """Tell the group, if it can be reached in time; errors are logged."""
        if not self._active:
            return
        self._active = False
        shutdown = self.member.leave()
        self._cluster.metadata.want_all(False)
        if shutdown is not None:
            await self._send_leave(shutdown, timeout_s)

    def leave_soon(self) -> None:
        """Begins to leave without waiting; does nothing if the member has left."""
        if self._active:
            self._begin(self.leave(LEAVING_S))

    async def stop(self) -> None:
        self._active = False
        for timer in (self._timer, self._missing_timer):
            if timer is not None:
                timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.links.close()

    def polled(self) -> None:
        """Notes that the user has polled again, and the member waited for that."""
        if self._active:
            self.member.poll_began(self._now())
            self.turn()

    def handed_over(self, number: int) -> None:
        if self._active:
            self.member.handed_over(number, self._now())
            self.turn()

    def metadata_changed(self) -> None:
        if self._active:
            self._learn()
            self.turn()

    def turn(self) -> None:
        """Send what is due, show what changed, and see to the next turn."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._active:
            return
        try:
            self._run_once()
        except Exception as error:  # noqa: BLE001 - the root of the group's work: users must learn of it
            self._break_down(error)

    # -- inside

    def _run_once(self) -> None:
        member, now = self.member, self._now()
        for ask in member.due(now):
            leaves = ask.api == "LeaveGroup"
            self._begin(self._send_leave(ask, ask.wait_s) if leaves else self._send(ask))
        self._want_topics()
        shown = (member.handover, None if member.problem is None else str(member.problem))
        if shown != self._shown:
            self._shown = shown
            self._on_change()
        deadline = member.next_deadline(now)
        if deadline is not None and deadline != float("inf"):
            delay_s = max(0.0, deadline - now)
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.turn)

    def _want_topics(self) -> None:
        metadata = self._cluster.metadata
        metadata.want_all(self.member.wants_all)
        metadata.want_only(self.member.wants)

    def _learn(self) -> None:
        """Tell the core what is known of topics; ask again, after a while, for those that are not there."""
        image = self._cluster.image
        wanted = set(self.member.wants)
        counts = dict.fromkeys(image.topic_errors, 0) | {
            name: len(topic.partitions)
            for name, topic in image.topics.items()
            if not topic.internal or name in wanted  # no pattern matches Kafka's own topics
        }
        names = {topic.topic_id: name for name, topic in image.topics.items()}
        if self._cluster.metadata.problem is None and (counts or self._cluster.image.brokers):
            self.member.learned(counts, names, self._now())
        if self._missing_timer is None and any(topic in image.topic_errors for topic in self.member.wants):
            loop = asyncio.get_running_loop()
            self._missing_timer = loop.call_later(_MISSING_TOPIC_PAUSE_S, self._refresh_missing)

    def _refresh_missing(self) -> None:
        self._missing_timer = None
        if self._active:
            self._cluster.metadata.request_update()

    def _begin(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="odradek-group")
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _send(self, ask: MemberRequest) -> None:
        try:
            try:
                response = await self._coordinator.send(
                    ask.api, ask.build, timeout_s=ask.wait_s, links=self.links
                )
            except KafkaError as error:
                _log.debug("group_request_failed", api=ask.api, reason=explain(error))
                self.member.failed(ask, error, self._now())
            else:
                self._coordinator.note(ErrorCode.of(response.error_code))
                self.member.answered(ask, response, self._now())
                if self.member.unnamed:
                    self._cluster.metadata.request_update(urgent=True)
        except Exception as error:  # noqa: BLE001 - the root of a task: users must learn of it
            self._break_down(error)
            return
        self.turn()

    async def _send_leave(self, ask: MemberRequest, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._coordinator.send(ask.api, ask.build, timeout_s=timeout_s)
        except (KafkaError, TimeoutError) as error:
            _log.info("group_not_left", reason=explain(error))

    def _break_down(self, error: Exception) -> None:
        _log.exception("group_membership_broke_down")
        self._active = False
        self._failure = ErrorValue.of(ClientBrokenError("consumer", error))
        self._on_change()

    def _now(self) -> float:
        return self._cluster.clock.monotonic()
