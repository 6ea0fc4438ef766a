"""Admin calls: they reach the right broker, retry what is worth it, and report the outcome of each item."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from odradek.client.admin.types import ConfigResource, ResourceType
from odradek.client.groups.coordinator import Coordinator
from odradek.client.network.cluster import ClusterClient
from odradek.client.network.errors import PartialFailureError, TimedOutError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import NO_BROKER, TopicPartition
from odradek.model.java_numbers import is_digits
from odradek.protocol import Message

R = TypeVar("R")

Items = Mapping[Any, Any]
Grouped = dict[int, dict[Any, Any]]
"""Items by the broker to ask."""


@dataclass(slots=True, kw_only=True)
class CallOutcome:
    """One answer's result or error for each item."""

    results: dict[Any, Any]
    errors: dict[Any, KafkaError]  # stored-error: each is raised, or given to the caller, once

    @classmethod
    def none(cls) -> CallOutcome:
        return cls(results={}, errors={})

    def note(self, subject: object, error_code: int, message: str | None, value: object = None) -> None:
        """Item by item, as answers list them."""
        code = ErrorCode.of(error_code)
        if code is ErrorCode.NONE:
            self.results[subject] = value
        else:
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not message:
                message = "there is no such topic or partition"
            self.errors[subject] = KafkaError(code, f"{subject}: {message or code.meaning}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request, and how to read its answer."""

    request: Message
    answer: type[Message]
    read: Callable[[Any], CallOutcome]
    at_most: int | None = None
    """The highest version of the API that `one` sends; None for any."""

    def whole(self, subject: object) -> Exchange:
        """Returns the exchange for a call about one item: its result is the whole answer."""

        def read(response: object) -> CallOutcome:
            return CallOutcome(results={subject: self.read(response)}, errors={})

        return Exchange(request=self.request, answer=self.answer, read=read)


Ask = Callable[[dict[Any, Any], float], Exchange]
"""Returns the exchange about some items; the call's time that is left is in seconds."""
AskBroker = Callable[[int, dict[Any, Any], float], Exchange]
"""An `Ask` that gets the id of the broker first."""
GroupItems = Callable[[Items, float], Awaitable[Grouped]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyDone:
    """The error of a broker for a change that was made before, and the result that the call then has."""

    code: ErrorCode
    result: Callable[[Any], Any]

    def settle(self, outcome: CallOutcome, in_doubt: Items) -> None:
        """Turns errors of items whose earlier request was not answered into results."""
        for subject in in_doubt:
            error = outcome.errors.get(subject)
            if error is not None and error.code is self.code:
                del outcome.errors[subject]
                outcome.results[subject] = self.result(subject)


@dataclass(frozen=True, slots=True)
class Failures:
    """The errors of one call, by item."""

    what: str
    errors: Mapping[Any, KafkaError]  # stored-error: as in `CallOutcome`

    def raise_or(self, results: dict[Any, R]) -> dict[Any, R]:
        """Returns the results if nothing failed. An error that is all there is to tell is raised as it is."""
        if not self.errors:
            return results
        first = next(iter(self.errors.values()))
        if not results and all(error is first for error in self.errors.values()):
            raise first
        raise PartialFailureError(self.what, self.errors, results)


class AdminCalls:
    """The calls of one admin client."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster: Final = cluster

    async def one(self, what: str, timeout_s: float, exchange: Exchange) -> CallOutcome:
        """Asks any broker, until one answers; errors of single items are left to the caller."""

        async def attempt(left_s: float) -> CallOutcome:
            message = await self._cluster.send(
                NO_BROKER, exchange.request, exchange.answer, timeout_s=left_s, at_most=exchange.at_most
            )
            return exchange.read(message)

        outcome: CallOutcome = await self._cluster.retrying(what, timeout_s, attempt)
        return outcome

    async def each(
        self,
        what: str,
        wanted: Items,
        timeout_s: float,
        ask: Ask | None,
        by: GroupItems,
        ask_broker: AskBroker | None = None,
        already: AlreadyDone | None = None,
    ) -> dict[Any, Any]:
        """Asks the broker that `by` names about every item, again while its error is retriable and time is left.

        `ask_broker` in place of `ask` learns which broker it is. An earlier attempt may have been carried out
        although its response was lost; `already` is the error that means this.
        """
        done = CallOutcome.none()
        open_errors: dict[object, KafkaError] = {}
        unanswered: dict[object, None] = {}

        async def attempt(left_s: float) -> None:
            pending = {
                subject: wanted[subject]
                for subject in wanted
                if subject not in done.results and subject not in done.errors
            }
            open_errors.clear()
            for broker, some in (await by(pending, left_s)).items():
                exchange = ask_broker(broker, some, left_s) if ask_broker else _required(ask)(some, left_s)
                await self._cluster.connection(broker)  # what fails here was not sent
                in_doubt = {subject: None for subject in some if subject in unanswered}
                unanswered.update(dict.fromkeys(some))
                message = await self._cluster.send(
                    broker, exchange.request, exchange.answer, timeout_s=left_s
                )
                outcome = exchange.read(message)
                if already is not None:
                    already.settle(outcome, in_doubt)
                for subject in some:
                    error = outcome.errors.get(subject)
                    if error is None or error.code is not ErrorCode.REQUEST_TIMED_OUT:
                        unanswered.pop(subject, None)
                done.results.update(outcome.results)
                for subject, error in outcome.errors.items():
                    (open_errors if error.retriable else done.errors)[subject] = error
            if open_errors:
                raise next(iter(open_errors.values()))

        try:
            await self._cluster.retrying(what, timeout_s, attempt)
        except TimedOutError as error:
            for subject in wanted:
                if subject not in done.results and subject not in done.errors:
                    done.errors[subject] = open_errors.get(subject, error)
        return Failures(what, done.errors).raise_or(done.results)

    # -- who to ask

    async def by_controller(self, items: Items, timeout_s: float) -> Grouped:
        if not items:
            return {}
        image = self._cluster.image
        if image.controller not in image.brokers:
            image = await self._cluster.metadata.refresh(timeout_s)
        return {image.controller if image.controller in image.brokers else NO_BROKER: dict(items)}

    async def by_coordinator(self, key_type: int, items: Items, timeout_s: float) -> Grouped:
        """Groups groups or transactional ids by their coordinator."""
        grouped: Grouped = {}
        for key, content in items.items():
            coordinator = Coordinator(self._cluster, key, key_type)
            grouped.setdefault(await coordinator.broker(), {})[key] = content
        return grouped

    async def by_leader(self, items: Items, timeout_s: float) -> Grouped:
        grouped: Grouped = {}
        for tp, content in items.items():
            assert isinstance(tp, TopicPartition)
            topic = await self._cluster.metadata.topic(tp.topic, timeout_s)
            if tp.partition >= len(topic.partitions):  # it may have grown since the image was made
                await self._cluster.metadata.refresh(timeout_s)
                topic = await self._cluster.metadata.topic(tp.topic, timeout_s)
            if not 0 <= tp.partition < len(topic.partitions):
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS, f"{tp}: the topic has {len(topic.partitions)} partitions"
                )
            leader = self._cluster.image.leader(tp)
            if leader is None:
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader at present")
            grouped.setdefault(leader, {})[tp] = content
        return grouped

    async def by_config_owner(self, items: Items, timeout_s: float) -> Grouped:
        """Groups config resources by the broker that answers for them: a broker for its own settings, any broker for the
        rest."""
        grouped: Grouped = {}
        for resource, content in items.items():
            assert isinstance(resource, ConfigResource)
            own = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
            broker: int = NO_BROKER
            if own:
                if not is_digits(resource.name):
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"{resource.name!r:.80} is no id of a broker: it is a number",
                    )
                broker = int(resource.name)
                if broker not in self._cluster.image.brokers:
                    image = await self._cluster.metadata.refresh(timeout_s)
                    if broker not in image.brokers:
                        raise KafkaError(
                            ErrorCode.INVALID_REQUEST, f"there is no broker {broker} in the cluster"
                        )
            grouped.setdefault(broker, {})[resource] = content
        return grouped

    async def by_itself(self, items: Items, timeout_s: float) -> Grouped:
        """Groups brokers, each of which answers for itself."""
        return {broker: {broker: content} for broker, content in items.items()}


def _required(ask: Ask | None) -> Ask:
    assert ask is not None
    return ask
