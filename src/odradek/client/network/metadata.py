"""Keeps the cluster image fresh: asks some broker, again when something looks wrong, and now and then anyway.

One refresh is under way at a time. A caller that needs news asks and waits for a refresh that began after the question.
Between refreshes there is a pause that grows while brokers cannot be reached or a wanted topic is not there, so that a
thousand failing requests make one question. When no known broker answers, the bootstrap list is asked again (`recovery.py`).
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from odradek.client.network.backoff import Backoff
from odradek.client.network.connections import BrokerConnections
from odradek.client.network.errors import (
    BrokerUnreachableError,
    ClientBrokenError,
    ClientClosedError,
    TimedOutError,
    explain,
)
from odradek.client.network.metadata_snapshot import MetadataSnapshot, TopicSnapshot, check_partitions
from odradek.client.network.recovery import NOT_ASKED_AGAIN, MetadataRecovery
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.protocol.messages.metadata.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.runtime.ports import Clock, Entropy
from odradek.telemetry import events

_log = events.get("client")

_HOPELESS: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class Metadata:
    """The image, and the task that refreshes it. Lives on one event loop."""

    def __init__(
        self,
        settings: ClientSettings,
        links: BrokerConnections,
        clock: Clock,
        entropy: Entropy,
        *,
        auto_create: bool,
    ) -> None:
        self._settings = settings
        self._links = links
        self._clock = clock
        self._entropy = entropy
        self._auto_create = auto_create
        self._backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, entropy)
        self._topics: dict[str, None] = {}
        self._unknown_counts: dict[str, int] = {}
        """The number of answers in a row without the topic, by topic."""
        self._all_topics = False
        self._asked = 0
        self._served = 0
        self._wakeup = asyncio.Event()
        self._urgent = asyncio.Event()
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        """Whether there will be no more news: closed, or broken."""
        self._recovery = MetadataRecovery(settings)
        self._fruitless_count = 0
        self.image = MetadataSnapshot()
        self._problem: ErrorValue[Exception] | None = None
        self.on_news: Callable[[], None] = lambda: None
        """Called after every attempt to refresh."""

    @property
    def problem(self) -> Exception | None:
        """The error of the last refresh; None if it succeeded. A new exception each time."""
        return self._problem.exception() if self._problem is not None else None

    @problem.setter
    def problem(self, error: Exception | None) -> None:
        self._problem = ErrorValue.of(error) if error is not None else None

    def start(self) -> None:
        """Starts the task that refreshes the metadata. Idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="odradek-metadata")

    async def close(self) -> None:
        self._ended = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.problem = ClientClosedError("client")
        self._notify_waiters()

    def want(self, topics: Iterable[str]) -> None:
        """Keep these topics in the image from now on; new ones are asked for at once."""
        new = [topic for topic in topics if topic not in self._topics]
        if new:
            self._topics.update(dict.fromkeys(new))
            self.request_update(urgent=True)

    def want_only(self, topics: Iterable[str]) -> None:
        """Keep these and no others: to ask about a topic may create it again after it was deleted."""
        wanted = dict.fromkeys(topics)
        self.remove_interest([topic for topic in self._topics if topic not in wanted])
        self.want(wanted)

    def want_all(self, wanted: bool) -> None:
        """Keep every topic of the cluster in the image, whatever its name, or no longer."""
        if wanted and not self._all_topics:
            self.request_update(urgent=True)
        self._all_topics = wanted

    def remove_interest(self, topics: Iterable[str]) -> None:
        """Stops asking about these topics, and forgets them."""
        gone = [topic for topic in topics if self._topics.pop(topic, "") is None]
        if gone:
            self.image = self.image.without(gone)

    def request_update(self, *, urgent: bool = False) -> int:
        """Something looks wrong: refresh soon. `urgent`: without the usual pause. Returns a ticket for `news`."""
        self._asked += 1
        self._wakeup.set()
        if urgent:
            self._urgent.set()
        return self._asked

    async def news(self, ticket: int, deadline: float) -> bool:
        """Wait for an attempt to refresh that ends after the ticket was drawn; True when one that began after it
        succeeded. TimeoutError at `deadline`; non-retriable problems (a wrong peer) are raised."""
        while self._served < ticket:
            if self._ended and self._problem is not None:
                raise self._problem.exception()
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(future)
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                await future
            problem = self.problem
            if problem is not None:
                if not isinstance(problem, KafkaError) or not problem.retriable:
                    raise problem
                return False
        return True

    async def refresh(self, timeout_s: float) -> MetadataSnapshot:
        """Returns a fresh image. Raises TimedOutError with the reason."""
        deadline = self._clock.monotonic() + timeout_s
        ticket = self.request_update(urgent=True)
        try:
            while not await self.news(ticket, deadline):
                pass
        except TimeoutError:
            raise TimedOutError(f"the cluster did not answer within {timeout_s:g} s", self.problem) from None
        return self.image

    async def topic(self, name: str, timeout_s: float, *, gone_after_s: float | None = None) -> TopicSnapshot:
        """Returns the topic, once the cluster has it. KafkaError with the reason when it has not within `timeout_s`.

        `gone_after_s`: from then on, a broker's answer that there is no such topic is believed.
        """
        began = self._clock.monotonic()
        deadline = began + timeout_s
        until = deadline if gone_after_s is None else min(deadline, began + gone_after_s)
        self.want([name])
        while True:
            known = self.image.topics.get(name)
            if known is not None and known.partitions:
                return known
            code = self.image.topic_errors.get(name)
            if code in _HOPELESS:
                raise KafkaError(code, f"topic {name!r}: {code.meaning}")
            try:
                await self.news(self.request_update(), until)
            except TimeoutError:
                if until >= deadline or (self.problem is None and self.image.is_gone(name)):
                    raise self._missing(name, round(until - began, 3)) from None
                until = deadline

    async def find(self, name: str, timeout_s: float) -> TopicSnapshot | None:
        """Returns the topic, or None at the first answer that there is none. KafkaError when it is not known within
        `timeout_s`.

        Refreshes do not go on to ask about a topic that is not there.
        """
        deadline = self._clock.monotonic() + timeout_s
        is_ours, is_first = False, True
        while True:
            known = self.image.topics.get(name)
            if known is not None and known.partitions:
                return known
            is_ours = is_ours or name not in self._topics
            self.want([name])
            try:
                is_answered = await self.news(self.request_update(urgent=is_first), deadline)
            except TimeoutError:
                raise self._missing(name, timeout_s) from None
            code = self.image.topic_errors.get(name)
            if code in _HOPELESS:
                raise KafkaError(code, f"topic {name!r}: {code.meaning}")
            if is_answered and self.image.is_gone(name):
                if is_ours:
                    self.remove_interest([name])
                return None
            is_first = False

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicSnapshot | None]:
        """Returns topics as a broker has them now, None for a name without one; those that it cannot describe are left out.

        One request apart from the refreshes: it creates no topic, keeps no interest, and does not change the
        image. Raises KafkaError.
        """
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
        )
        problem = KafkaError(
            ErrorCode.BROKER_NOT_AVAILABLE, "topics cannot be described: no broker is reachable"
        )
        for address, _ in self._candidates():
            try:
                response = await (await self._links.get(address)).send(request)
            except KafkaError as error:
                problem = error.as_outcome()
                continue
            check_partitions(response)
            image = MetadataSnapshot().merged(response)
            gone = [name for name in image.topic_errors if image.is_gone(name)]
            return {**image.topics, **dict.fromkeys(gone)}
        raise problem

    def _missing(self, name: str, timeout_s: float) -> KafkaError:
        if self.problem is None and self.image.topic_errors.get(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic {name!r} (waited {timeout_s:g} s for it)",
            )
        code = self.image.topic_errors.get(name)
        cause = self.problem or (KafkaError(code) if code is not None else None)
        return TimedOutError(f"no metadata for topic {name!r} within {timeout_s:g} s", cause)

    # -- the task

    async def _run(self) -> None:
        try:
            while True:
                await self._wait_until_asked()
                serving = self._asked
                self._wakeup.clear()
                self._urgent.clear()
                fruitful = await self._attempt()
                self._fruitless_count = 0 if fruitful else self._fruitless_count + 1
                if self.problem is None:
                    self._served = serving
                else:
                    self._wakeup.set()
                self._notify_waiters()
                self.on_news()
                await self._pause()
        except Exception as error:  # noqa: BLE001 - the root of a task: its waiter must learn of it
            _log.exception("metadata_refresh_failed")
            self._ended = True
            self.problem = ClientBrokenError("client", error)
            self._notify_waiters()
            self.on_news()

    async def _wait_until_asked(self) -> None:
        try:
            async with asyncio.timeout(self._settings.metadata_max_age_ms / 1000):
                await self._wakeup.wait()
        except TimeoutError:
            self._asked += 1

    async def _pause(self) -> None:
        """Give others time to ask the same, and brokers time to recover."""
        try:
            async with asyncio.timeout(self._backoff.delay_s(self._fruitless_count)):
                await self._urgent.wait()
        except TimeoutError:
            pass

    async def _attempt(self) -> bool:
        """Asks until one broker answers. Sets `image` or `problem`; True when every wanted topic is in order."""
        problems: dict[Address, Exception] = {}
        whole = self._all_topics
        recovery = self._recovery
        recovery.refresh_began(self._clock.monotonic())
        for address, is_known in self._candidates():
            try:
                async with asyncio.timeout(recovery.left_s(self._clock.monotonic()) if is_known else None):
                    response = await self._fetch_from(address, whole)
            except TimeoutError:
                recovery.required()
                problems[address] = BrokerUnreachableError(
                    f"{address} did not answer within metadata.recovery.rebootstrap.trigger.ms"
                )
                continue
            except KafkaError as error:
                problems[address] = self._note_failure(address, error, is_known=is_known)
                continue
            recovery.succeeded()
            image = self._image_before(response).merged(response)
            if whole:
                present = {topic.name for topic in response.topics}
                image = image.without([name for name in image.topics if name not in present])
            self.image = image
            self.problem = None
            self._warn_of_unknown()
            return not self.image.topic_errors and bool(self.image.brokers)
        self.problem = _summary(
            problems, "" if recovery.is_enabled or not self.image.brokers else NOT_ASKED_AGAIN
        )
        _log.debug("metadata_refresh_put_off", reason=explain(self.problem))
        return False

    def _warn_of_unknown(self) -> None:
        """Warns once of each wanted topic that the cluster does not have; again only after it was there.

        The first answer does not count where brokers are asked to create the topic: they may be about to.
        """
        counts = {
            name: self._unknown_counts.get(name, 0) + 1 for name in self._topics if self.image.is_gone(name)
        }
        self._unknown_counts = counts
        due = 2 if self._auto_create else 1
        for name in [name for name, count in counts.items() if count == due]:
            near = difflib.get_close_matches(name, self.image.topics)
            more = {"near": near} if near else {}
            _log.warning(
                "unknown_topic",
                topic=name,
                reason="there is no topic of this name: correct the name, or create the topic",
                **more,
            )

    async def _fetch_from(self, address: Address, whole: bool) -> MetadataResponse:
        connection = await self._links.get(address)
        request = MetadataRequest(
            topics=None if whole else [MetadataRequestTopic(name=topic) for topic in self._topics],
            allow_auto_topic_creation=self._auto_create,
        )
        response = await connection.send(request)
        assert isinstance(response, MetadataResponse)
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(ErrorCode.of(response.error_code))
        check_partitions(response)
        return response

    def _note_failure(self, address: Address, error: KafkaError, *, is_known: bool) -> Exception:
        """Notes why a broker gave no metadata, and returns it for the summary."""
        if is_known:
            self._recovery.broker_failed()
        if error.code is not ErrorCode.REBOOTSTRAP_REQUIRED or not self._recovery.is_enabled:
            return error.as_outcome()
        self._recovery.required()
        return BrokerUnreachableError(f"{address} requires that the client bootstraps again")

    def _candidates(self) -> Iterator[tuple[Address, bool]]:
        """Yields the brokers to ask and whether each is of the last answer: an open connection first, then the others from a
        random one on, then, as far as the recovery allows it, the bootstrap list."""
        known: dict[Address, None] = {}
        connected = self._links.least_loaded()
        if connected is not None:
            known[connected.address] = None
        known.update(dict.fromkeys(self._shuffled(tuple(self.image.brokers.values()))))
        asked: set[Address] = set()
        for address in known:
            if self._recovery.is_due(self._clock.monotonic()):
                break
            asked.add(address)
            yield address, True
        if known and self._recovery.is_due(self._clock.monotonic()):
            if self._recovery.give_up():
                _log.info("client_bootstraps_again", brokers=[str(address) for address in known])
                self._links.abandon(known)
            asked.clear()
        if self._recovery.is_enabled or not self.image.brokers:
            for address in self._shuffled(self._settings.bootstrap):
                if address not in asked:
                    yield address, False

    def _shuffled(self, addresses: tuple[Address, ...]) -> tuple[Address, ...]:
        start = int(self._entropy.uniform() * len(addresses))
        return (*addresses[start:], *addresses[:start])

    def _image_before(self, response: MetadataResponse) -> MetadataSnapshot:
        """Returns the image that an answer changes: an empty one where another cluster answers."""
        known = self.image.cluster_id
        if known is None or response.cluster_id is None or known == response.cluster_id:
            return self.image
        _log.warning("cluster_was_replaced", old=known, new=response.cluster_id)
        return MetadataSnapshot()

    def _notify_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _summary(problems: dict[Address, Exception], advice: str) -> Exception:
    """Returns one error for all the brokers that were tried."""
    if len(problems) == 1 and not advice:
        return next(iter(problems.values()))
    hopeless = [error for error in problems.values() if isinstance(error, KafkaError) and not error.retriable]
    if len(hopeless) == len(problems):
        return hopeless[0]
    reasons = "; ".join(explain(error) for error in problems.values())
    return BrokerUnreachableError(f"no broker can be reached: {reasons}{advice and f' ({advice})'}")
