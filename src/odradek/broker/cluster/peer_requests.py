"""Requests of coordinators and partition leaders to other brokers: the port, and a batcher of requests to the same broker.

`net/peers.Peers.send` fulfils the port. It is passed in, so that a single broker imports nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from odradek.cluster.image import NO_LEADER, ClusterImage
from odradek.model.errors import ErrorValue, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.protocol import Message

Q = TypeVar("Q")
A = TypeVar("A")

_TOGETHER_MAX: Final = 500


class SendToPeer(Protocol):
    def __call__(
        self,
        broker: BrokerId,
        api_key: int,
        request: Message,
        *,
        timeout_s: float | None = None,
        lane: str = "",
    ) -> Awaitable[Message]:
        """Returns the broker's response; an OdradekError that is no KafkaError when there is none."""


class NoPeers(OdradekError):
    """The error of a request to another broker where this broker knows of no other."""


async def no_peers(
    broker: BrokerId, api_key: int, request: Message, *, timeout_s: float | None = None, lane: str = ""
) -> Message:
    """Returns the `SendToPeer` of a broker alone."""
    raise NoPeers(f"broker {broker} cannot be asked: this broker is alone")


def leader_of(image: ClusterImage, topic: str, index: int) -> BrokerId | None:
    """Returns the partition's leader: `NO_LEADER` while it has none, None when the cluster has no such partition."""
    topic_image = image.topics.get(topic)
    if topic_image is None or not 0 <= index < len(topic_image.partitions):
        return None
    return topic_image.partitions[index].leader


def by_leader(
    image: ClusterImage, partitions: Iterable[TopicPartition]
) -> tuple[dict[BrokerId, list[TopicPartition]], list[TopicPartition], list[TopicPartition]]:
    """Returns the partitions of each leader, those that no broker leads now, and those that do not exist."""
    led: dict[BrokerId, list[TopicPartition]] = {}
    leaderless, missing = [], []
    for name in partitions:
        leader = leader_of(image, *name)
        if leader is None:
            missing.append(name)
        elif leader == NO_LEADER:
            leaderless.append(name)
        else:
            led.setdefault(leader, []).append(name)
    return led, leaderless, missing


class RequestBatcher(Generic[Q, A]):
    """Questions to other brokers, gathered: those that come while requests are under way share the next one.

    `send` asks a broker several questions in one request; its answers are in the order of the questions. What it raises, every
    one of them raises. Questions of one request differ in `key`.
    """

    def __init__(
        self,
        send: Callable[[BrokerId, Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        key: Callable[[Q], Hashable],
        under_way_max: int,
    ) -> None:
        self._send = send
        self._key = key
        self._under_way_max = under_way_max
        self._waiting: dict[BrokerId, list[tuple[Q, asyncio.Future[A]]]] = {}
        self._under_way: dict[BrokerId, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def submit(self, broker: BrokerId, question: Q) -> asyncio.Future[A]:
        """Returns the answer. Where one request is under way at a time, questions are asked in the order of these calls."""
        answered: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(broker, [])
        waiting.append((question, answered))
        if len(waiting) == 1 and self._under_way.get(broker, 0) < self._under_way_max:
            self._begin(broker)
        return answered

    def close(self) -> None:
        """Ends all waiting, for requests under way and for queued ones."""
        for task in list(self._tasks):
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        for questions in waiting.values():
            for _, answered in questions:
                answered.cancel()

    def _begin(self, broker: BrokerId) -> None:
        """The request itself is made in the loop's next round: what is asked in this one goes with it."""
        self._under_way[broker] = self._under_way.get(broker, 0) + 1
        task = asyncio.get_running_loop().create_task(self._carry(broker))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _carry(self, broker: BrokerId) -> None:
        taken: list[tuple[Q, asyncio.Future[A]]] = []
        try:
            while taken := self._next_batch(broker):
                if self._waiting.get(broker) and self._under_way[broker] < self._under_way_max:
                    self._begin(broker)
                await self._send_batch(broker, taken)
        finally:
            for _, answered in taken:
                answered.cancel()
            self._under_way[broker] -= 1
            if not self._under_way[broker]:
                del self._under_way[broker]

    async def _send_batch(self, broker: BrokerId, taken: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._send(broker, [question for question, _ in taken])
            pairs = list(zip(taken, answers, strict=True))
        except Exception as error:  # noqa: BLE001 - the asker raises it
            refused = ErrorValue.of(error)
            for _, answered in taken:
                if not answered.done():
                    answered.set_exception(refused.exception().with_traceback(error.__traceback__))
                    answered.exception()  # the asker may be gone: that is no fault to report
            return
        for (_, answered), future in pairs:
            if not answered.done():
                answered.set_result(future)

    def _next_batch(self, broker: BrokerId) -> list[tuple[Q, asyncio.Future[A]]]:
        taken: list[tuple[Q, asyncio.Future[A]]] = []
        left: list[tuple[Q, asyncio.Future[A]]] = []
        keys: set[Hashable] = set()
        for entry in self._waiting.pop(broker, ()):
            key = self._key(entry[0])
            if entry[1].done():  # the caller was cancelled
                continue
            if key in keys or len(taken) >= _TOGETHER_MAX:
                left.append(entry)
            else:
                keys.add(key)
                taken.append(entry)
        if left:
            self._waiting[broker] = left
        return taken
