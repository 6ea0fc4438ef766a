"""Runs the controller's changes: one at a time, checked against the latest image, committed, published.

A change runs in a task of its own and to its end, whether or not its asker is still there. Until the registry has it, nothing
is changed; once it has, nothing stops its publication. A commit whose outcome is unknown is followed by reading the state
again, before any other change looks at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from odradek.cluster.controller.publishing import Publication
from odradek.cluster.controller.store import ClusterStore, in_commits
from odradek.cluster.image import ClusterImage, TopicImage
from odradek.model.errors import ErrorCode, KafkaError
from odradek.registry import Operation, RegistryError
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
_log = events.get("cluster")


class Changes:
    """The state that all parts of the controller share. Their steps run within `alone`, and read `image`."""

    def __init__(self, store: ClusterStore, publication: Publication) -> None:
        self.store = store
        self.publication = publication
        self._changing = asyncio.Lock()
        self._under_way: dict[asyncio.Task[object], None] = {}
        self._closed = False

    @property
    def image(self) -> ClusterImage:
        """The committed image, from which the next change starts."""
        return self.publication.latest

    async def alone(self, change: Callable[[], Awaitable[T]]) -> T:
        """Runs a change when no other runs; returns once it is committed."""
        return await self._outlive(self._in_turn(change))

    async def applied(self, change: Callable[[], Awaitable[T]]) -> T:
        """Runs a change like `alone`; returns once the local broker has applied it, too."""
        return await self._outlive(self._and_applied(change))

    async def close(self) -> None:
        """Waits for the changes under way and refuses all later ones."""
        self._closed = True
        while self._under_way:
            await asyncio.gather(*self._under_way, return_exceptions=True)

    async def commit(self, operations: Sequence[Operation], after: ClusterImage) -> None:
        """Makes one commit within a change, and publishes the image that it leads to. Raises KafkaError as
        `ClusterStore.commit`."""
        before = self.image
        await self.store.commit(operations)
        self.publication.publish(replace(after, version=before.version + 1))

    async def commit_topics(
        self,
        topics: Iterable[TopicImage],
        finish: Callable[[ClusterImage], ClusterImage] | None = None,
        more: Sequence[Operation] = (),
    ) -> None:
        """Replaces topics within a change, in as many commits as are needed; `finish` makes the image of the last one, which
        has `more` operations."""
        portions = list(in_commits((topic, self.store.topic(topic)) for topic in topics)) or [[]]
        for number, portion in enumerate(portions, start=1):
            image = self.image.with_topics([topic for topic, _ in portion]) if portion else self.image
            operations = [operation for _, operation in portion]
            if number == len(portions):
                operations += more
                image = finish(image) if finish is not None else image
            if operations:
                await self.commit(operations, image)
            elif image is not self.image:
                self.publication.publish(replace(image, version=self.image.version + 1))

    async def _outlive(self, work: Coroutine[object, None, T]) -> T:
        return await outcome_of(self._begun(work))

    def _begun(self, work: Coroutine[object, None, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        return task

    async def _and_applied(self, change: Callable[[], Awaitable[T]]) -> T:
        outcome = await self._in_turn(change)
        await self.publication.applied_here()
        return outcome

    async def _in_turn(self, change: Callable[[], Awaitable[T]]) -> T:
        async with self._changing:
            if self._closed:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")
            if self.store.is_deposed:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller any more")
            if self.store.is_uncertain:
                await self._read_again()
            return await change()

    async def _read_again(self) -> None:
        before = self.image
        try:
            image = await self.store.load(before)
        except RegistryError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        _log.warning("cluster_state_read_again", topics=len(image.topics))
        self.publication.publish(replace(image, version=before.version + 1))


class SharedChange(Generic[Q, A]):
    """A queue of requests of one kind: those that come while a commit is under way share the next one.

    `decide` receives all waiting requests within one change, and returns the outcome of each, in order."""

    def __init__(
        self, changes: Changes, decide: Callable[[Sequence[Q]], Awaitable[Sequence[A | KafkaError]]]
    ) -> None:
        self._changes = changes
        self._decide = decide
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []

    async def submit(self, request: Q) -> A:
        """Raises what the request comes to, and as `Changes.alone`."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        entry = request, future
        self._waiting.append(entry)
        try:
            await self._changes.alone(self._decide_together)
        except BaseException:
            if entry in self._waiting:  # it was not looked at, and must not be later: its asker comes again
                self._waiting.remove(entry)
            raise
        del entry
        try:
            return await future
        finally:
            del future  # its error's traceback has this frame: a cycle

    async def _decide_together(self) -> None:
        waiting, self._waiting = self._waiting, []
        outcomes: Sequence[A | KafkaError] = [_UNDECIDED] * len(waiting)
        try:
            outcomes = await self._decide([request for request, _ in waiting])
        finally:  # also after an error: every future gets an outcome
            for (_, future), outcome in zip(waiting, outcomes, strict=True):
                _settle(future, outcome)


_UNDECIDED: Final = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "it was not decided: ask again")


def _settle(future: asyncio.Future[A], outcome: A | KafkaError) -> None:
    if future.done():
        return
    if isinstance(outcome, KafkaError):
        future.set_exception(KafkaError(outcome.code, outcome.message))
        future.exception()  # the asker may be gone: that is no fault to report
    else:
        future.set_result(outcome)
