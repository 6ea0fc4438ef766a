"""Publishes the images that the controller made, and tracks how far each broker has applied them.

The local broker applies images one after another in a task of its own (`apply`); what it has applied is what the controller
shows. Remote brokers ask for changes (long polls); their requests have the version that they have applied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import suppress
from typing import Final
from uuid import UUID

from odradek.cluster.image import ClusterImage
from odradek.cluster.sync import ReplicaId, SyncAnswer, UpdateKind, delta, snapshot
from odradek.cluster.sync_pieces import in_turns
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

Apply = Callable[[ClusterImage, ClusterImage], Awaitable[asyncio.Future[None] | None]]
"""Called with the image before and after a change. What it cannot do for one partition must not stop the others. It does not
wait for logs: the future that it returns ends when new logs are open, and removed ones are deleted."""
_RECENT_COUNT_MAX: Final = 128
"""How many images are kept as starts of deltas, at most."""
_RECENT_COUNT_MIN: Final = 8
_RECENT_TOPICS_MAX: Final = 160_000
"""The most topics of all these images together: each has its own table of topics. A broker that lags further gets a snapshot.
"""
_log = events.get("cluster")


class Publication:
    """The images that the controller publishes, and how far each broker has applied them. `latest` is the image of the last
    commit, `applied` the image that the local broker has applied so far."""

    def __init__(self, image: ClusterImage, apply: Apply) -> None:
        self.latest = image
        self.applied = image
        self._apply = apply
        self._applying: asyncio.Task[None] | None = None
        self._recent: deque[ClusterImage] = deque([image])
        self._news = asyncio.Event()
        self._versions: dict[BrokerId, int] = {}
        """The versions that remote brokers have applied."""
        self._opening: dict[BrokerId, frozenset[ReplicaId]] = {}
        """The replicas that remote brokers are still opening."""
        self._logs: list[tuple[int, int, asyncio.Future[None]]] = []
        """The local broker's steps that add or remove logs: the version after which a step begins, the version at which it
        ends, and a future that is done when its logs are there or gone."""
        self._encoded: dict[tuple[int, int], asyncio.Task[bytes]] = {}
        self._is_over = False

    def publish(self, image: ClusterImage) -> None:
        """Makes an image the latest one."""
        self.latest = image
        self.remember(image)
        if self._applying is None or self._applying.done():
            self._applying = asyncio.get_running_loop().create_task(self._apply_all(), name="apply image")

    async def applied_here(self) -> None:
        """Returns when the local broker has applied the present latest image, and the logs are open, or deleted, that
        came or went with it. Logs of earlier images are not waited for."""
        version = self.latest.version
        while self._applying is not None and self.applied.version < version:
            await outcome_of(self._applying)
        for before, after, logs in self._logs:
            if before < version <= after:
                while not logs.done() and not self._is_over:
                    await self._news.wait()

    async def applied_by(
        self,
        brokers: Iterable[BrokerId],
        version: int,
        *,
        topic_ids: Collection[UUID] = (),
        timeout_s: float,
    ) -> bool:
        """Waits until these brokers, as far as they stay in service, have applied a version, and opened their replicas of these
        topics; False when it took too long."""
        waiting = list(brokers)
        try:
            async with asyncio.timeout(timeout_s):
                while not self._is_over:
                    alive = {broker.broker_id for broker in self.latest.brokers}
                    waiting = [
                        broker_id
                        for broker_id in waiting
                        if broker_id in alive and not self._has(broker_id, version, topic_ids)
                    ]
                    if not waiting:
                        return True
                    await self._news.wait()
        except TimeoutError:
            _log.warning("image_not_applied_in_time", version=version, brokers=waiting)
        return False

    def version_of(self, broker: BrokerId) -> int:
        """Returns the version that a remote broker reported to have applied; -1 before its first report."""
        return self._versions.get(broker, -1)

    def _has(self, broker: BrokerId, version: int, topic_ids: Collection[UUID]) -> bool:
        opening = self._opening.get(broker, ())
        return self._versions.get(broker, -1) >= version and not any(
            topic_id in topic_ids for topic_id, _ in opening
        )

    def acknowledged_by(
        self, broker: BrokerId, version: int, opening: frozenset[ReplicaId] = frozenset()
    ) -> None:
        """Notes which version a broker has applied, and which replicas it is still opening."""
        known = self._versions.get(broker, -1), self._opening.get(broker, frozenset())
        if known != (version, opening):
            self._versions[broker], self._opening[broker] = version, opening
            self._wake()

    def forget(self, broker: BrokerId) -> None:
        self._versions.pop(broker, None)
        self._opening.pop(broker, None)
        self._wake()

    async def update_since(self, epoch: int, version: int, *, max_wait_s: float) -> SyncAnswer:
        """Returns what leads from that image to the latest; if that is the latest, waits for news. NOT_CONTROLLER after
        `end`."""
        await self._news_within(
            max_wait_s, lambda: (epoch, version) != (self.latest.controller_epoch, self.latest.version)
        )
        return await self._update(epoch, version)

    async def applied_since(self, version: int, *, max_wait_s: float) -> SyncAnswer:
        """Returns the version that the local broker has applied once it is newer than `version`. NOT_CONTROLLER after `end`."""
        await self._news_within(max_wait_s, lambda: self.applied.version > version)
        return SyncAnswer(
            controller_epoch=self.applied.controller_epoch,
            version=self.applied.version,
            kind=UpdateKind.NOTHING,
        )

    def end(self) -> None:
        """Ends the publication; waiters are refused."""
        self._is_over = True
        self._wake()

    async def close(self) -> None:
        """Makes the local broker apply the latest images."""
        self.end()
        if self._applying is not None:
            await asyncio.gather(self._applying, return_exceptions=True)
        await asyncio.gather(*self._encoded.values(), return_exceptions=True)

    async def _news_within(self, seconds: float, is_there: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_there() and not self._is_over:
                    await self._news.wait()
        if self._is_over:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")

    async def _update(self, epoch: int, version: int) -> SyncAnswer:
        latest = self.latest
        kind = UpdateKind.NOTHING
        payload = b""
        if (epoch, version) != (latest.controller_epoch, latest.version):
            start = None
            if epoch == latest.controller_epoch:
                start = next((image for image in self._recent if image.version == version), None)
            kind = UpdateKind.SNAPSHOT if start is None else UpdateKind.DELTA
            payload = await self._encode(start, latest)
        return SyncAnswer(
            controller_epoch=latest.controller_epoch, version=latest.version, kind=kind, payload=payload
        )

    async def _encode(self, start: ClusterImage | None, latest: ClusterImage) -> bytes:
        """Encodes an update once for all brokers that ask for the same one, also while the encoding is under way."""
        key = (-1 if start is None else start.version, latest.version)
        encoding = self._encoded.get(key)
        if encoding is None:
            current = {form: encoded for form, encoded in self._encoded.items() if form[1] == latest.version}
            steps = snapshot(latest) if start is None else delta(start, latest)
            encoding = asyncio.get_running_loop().create_task(in_turns(steps), name="encode image")
            self._encoded = current | {key: encoding}
        return await asyncio.shield(encoding)

    @property
    def kept_count(self) -> int:
        """How many images a delta can begin at."""
        return len(self._recent)

    def remember(self, image: ClusterImage) -> None:
        self._recent.append(image)
        count_max = _RECENT_TOPICS_MAX // max(len(image.topics), 1)
        while len(self._recent) > min(max(count_max, _RECENT_COUNT_MIN), _RECENT_COUNT_MAX):
            self._recent.popleft()
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _apply_all(self) -> None:
        while self.applied is not self.latest:
            before, after = self.applied, self.latest
            try:
                logs = await self._apply(before, after)
                if logs is not None:
                    self._await_logs(before.version, after.version, logs)
            except Exception:  # noqa: BLE001 - the root of a task: the next image comes
                _log.exception("image_not_applied", version=after.version)
            self.applied = after
            self._wake()

    def _await_logs(self, before: int, after: int, logs: asyncio.Future[None]) -> None:
        step = before, after, logs

        def ended(_: asyncio.Future[None]) -> None:
            self._logs.remove(step)
            self._wake()

        self._logs.append(step)
        logs.add_done_callback(ended)
