"""A member in either protocol: its identity, what it owns, what its user must do next, and when its user last polled. The
two protocols are `classic.py` and `reconciling.py`; `choosing.py` picks one of them.

A core is driven by its service (`membership.py`): `due` returns the requests to send now, `answered` and
`failed` report their outcome, `handed_over` reports that the user's side has done what `handover` asks for.
No I/O and no clock: times are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol
from uuid import UUID

from odradek.client.groups.assignors import Assignor
from odradek.client.groups.values import NO_GENERATION, GroupMetadata, Handover, Partitions, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, ErrorValue, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol import Message

COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Answers after which the coordinator is looked up again."""
_EAGER_S: Final = 0.25
"""The pause after the first heartbeat of a member that has no partitions yet."""
PATIENCE_S: Final = 5.0
"""The seconds that we wait for a JoinGroup beyond the time that the broker may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a consumer that the cores need."""

    group_id: str
    group_instance_id: str | None = None
    session_timeout_s: float = 45.0
    heartbeat_interval_s: float = 3.0
    max_poll_interval_s: float = 300.0
    request_timeout_s: float = 30.0
    assignors: tuple[Assignor, ...] = ()
    remote_assignor: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRequest:
    """A request to the coordinator; `build` makes it for the version that the broker speaks."""

    api: str
    build: Callable[[int], Message]
    wait_s: float
    incarnation: int = 0
    """Answers to requests of an earlier one are of no use."""


class MemberCore(Protocol):
    """A core, as its service sees it."""

    @property
    def member_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def handover(self) -> Handover | None: ...
    @property
    def user(self) -> UserSide: ...
    @property
    def problem(self) -> KafkaError | None: ...
    @problem.setter
    def problem(self, error: KafkaError | None) -> None: ...
    @property
    def metadata(self) -> GroupMetadata: ...
    @property
    def wants(self) -> Sequence[str]: ...
    @property
    def wants_all(self) -> bool: ...
    @property
    def unnamed(self) -> bool: ...
    def subscribe(self, subscription: Subscription, now: float) -> None: ...
    def due(self, now: float) -> list[MemberRequest]: ...
    def next_deadline(self, now: float) -> float | None: ...
    def answered(self, ask: MemberRequest, response: Any, now: float) -> None: ...
    def failed(self, ask: MemberRequest, error: KafkaError, now: float) -> None: ...
    def learned(self, counts: Mapping[str, int], names: Mapping[UUID, str], now: float) -> None: ...
    def handed_over(self, number: int, now: float) -> None: ...
    def fenced(self, code: ErrorCode, now: float) -> None: ...
    @property
    def awaits_poll(self) -> bool: ...
    def poll_began(self, now: float) -> None: ...
    def leave(self) -> MemberRequest | None: ...


class UserSide:
    """What a member knows of its user: when they poll, and how many handovers they were asked for.

    A consumer that may use either protocol has one, which the cores of both protocols share."""

    __slots__ = ("handover_count", "in_poll", "polled_at")

    def __init__(self) -> None:
        self.in_poll = False
        self.polled_at = 0.0
        self.handover_count = 0


class FirstPauses:
    """The pauses between heartbeats of a member without partitions: short at first, then twice as long, up to the interval.

    The broker hands partitions out in the answers to heartbeats: a new member should not wait a whole interval for those that
    another member has given up meanwhile."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def begin(self) -> None:
        """Notes that the member has joined or subscribed."""
        self._count = 0

    def next_s(self, interval_s: float, *, has_partitions: bool) -> float:
        """Returns the time to the next heartbeat after one that was answered."""
        if has_partitions:
            self._count = 0
            return interval_s
        self._count += 1
        return min(interval_s, _EAGER_S * float(1 << min(self._count - 1, 16)))


class MembershipState:
    """The part that both protocols share."""

    def __init__(self, settings: MemberSettings, backoff: Backoff, user: UserSide | None = None) -> None:
        self.settings: Final = settings
        self.user: Final = user or UserSide()
        self._backoff = backoff
        self.subscription: Subscription | None = None
        self.member_id = ""
        self.generation = NO_GENERATION
        self.owned: Partitions = ()
        """The partitions that the user's side reads, by its last word."""
        self.handover: Handover | None = None
        self._problem: ErrorValue[KafkaError] | None = None
        self._incarnation = 0
        self._failure_count = 0
        self._not_before = 0.0

    @property
    def problem(self) -> KafkaError | None:
        """The error by which the member cannot take part; raised by `poll`. A new exception each time."""
        return self._problem.exception() if self._problem is not None else None

    @problem.setter
    def problem(self, error: KafkaError | None) -> None:
        self._problem = ErrorValue.of(error) if error is not None else None

    @property
    def metadata(self) -> GroupMetadata:
        """The identity for commits now."""
        return GroupMetadata(
            group_id=self.settings.group_id,
            generation=self.generation,
            member_id=self.member_id,
            group_instance_id=self.settings.group_instance_id,
        )

    @property
    def unnamed(self) -> bool:
        """Whether a partition was assigned of a topic whose name is not known yet: fresh metadata has it."""
        return False

    @property
    def wants_all(self) -> bool:
        """The metadata of every topic is needed, to know which match the pattern."""
        return self.subscription is not None and self.subscription.pattern is not None

    def _hand_over(
        self, *, revoked: Partitions = (), lost: bool = False, taken: Partitions | None = None
    ) -> None:
        self.user.handover_count += 1
        self.handover = Handover(
            number=self.user.handover_count,
            revoked=tuple(sorted(revoked)),
            lost=lost,
            taken=None if taken is None else tuple(sorted(taken)),
        )

    def _pause(self, now: float) -> None:
        self._not_before = now + self._backoff.delay_s(self._failure_count)
        self._failure_count += 1

    def _poll_deadline(self) -> float:
        return self.user.polled_at + self.settings.max_poll_interval_s

    def _poll_overdue(self, now: float) -> bool:
        return not self.user.in_poll and now >= self._poll_deadline()

    def _explained(self, code: ErrorCode, message: str | None = None) -> KafkaError:
        return KafkaError(code, f"group {self.settings.group_id!r}: {message or code.meaning}")


def matching_topics(pattern: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the topics with partitions whose names begin with a match of the pattern, by Python's `re`."""
    expression = re.compile(pattern)
    return tuple(sorted(topic for topic, count in counts.items() if count and expression.match(topic)))


def minus(left: Partitions, right: Partitions) -> tuple[TopicPartition, ...]:
    """Returns the partitions of `left` that are not in `right`, in the order of `left`."""
    gone = set(right)
    return tuple(tp for tp in left if tp not in gone)
