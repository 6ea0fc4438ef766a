"""A member that is free in its choice of the protocol: the consumer protocol (KIP-848) where the coordinator serves it for
the group, the classic protocol elsewhere.

It joins in the consumer protocol. A coordinator without it (it does not offer ConsumerGroupHeartbeat, offers a preview, or
answers UNSUPPORTED_VERSION) and a group that may not leave the classic protocol (GROUP_ID_NOT_FOUND: its
`group.consumer.migration.policy`, or an assignor of its members' own) make it a member of the classic protocol, until it
leaves. When a coordinator moves to a broker without the protocol, the member gives up its partitions first.

One protocol is in use at a time. Both cores share what is known of the user (`UserSide`), so that numbers of handovers go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from odradek.client.groups.classic import ClassicMember
from odradek.client.groups.member import MemberRequest, MemberSettings, UserSide
from odradek.client.groups.reconciling import HEARTBEAT, ConsumerPhase, ReconcilingMember
from odradek.client.groups.values import GroupMetadata, Handover, Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.telemetry import events

_log = events.get("client")


class ChoosingMember:
    """A `MemberCore` that delegates to the core of the protocol in use. `member_id` is the id in the consumer
    protocol."""

    def __init__(self, settings: MemberSettings, backoff: Backoff, *, member_id: str) -> None:
        self.user: Final = UserSide()
        self._consumer: Final = ReconcilingMember(
            settings, backoff, member_id=member_id, user=self.user, may_be_refused=True
        )
        self._classic: Final = ClassicMember(settings, backoff, self.user)
        self._core: ReconcilingMember | ClassicMember = self._consumer
        self._metadata: tuple[Mapping[str, int], Mapping[UUID, str]] | None = None
        """The last partition counts and names, for the core that takes over; None if they are of an older subscription."""

    @property
    def is_classic(self) -> bool:
        """Whether the member uses the classic protocol at present."""
        return self._core is self._classic

    # -- what the service and the user ask

    @property
    def member_id(self) -> str:
        return self._core.member_id

    @property
    def generation(self) -> int:
        return self._core.generation

    @property
    def handover(self) -> Handover | None:
        return self._core.handover

    @property
    def problem(self) -> KafkaError | None:
        """The error by which the member cannot take part; raised by `poll`. A new exception each time."""
        return self._core.problem

    @problem.setter
    def problem(self, error: KafkaError | None) -> None:
        self._core.problem = error

    @property
    def metadata(self) -> GroupMetadata:
        """The identity for commits now."""
        return self._core.metadata

    @property
    def wants(self) -> Sequence[str]:
        """Topics whose metadata must be known."""
        return self._core.wants

    @property
    def wants_all(self) -> bool:
        return self._core.wants_all

    @property
    def unnamed(self) -> bool:
        return self._core.unnamed

    @property
    def awaits_poll(self) -> bool:
        """Whether nothing happens before the user polls."""
        return self._core.awaits_poll

    def subscribe(self, subscription: Subscription, now: float) -> None:
        self._metadata = None
        self._core.subscribe(subscription, now)

    def due(self, now: float) -> list[MemberRequest]:
        return self._core.due(now)

    def next_deadline(self, now: float) -> float | None:
        return self._core.next_deadline(now)

    def learned(self, counts: Mapping[str, int], names: Mapping[UUID, str], now: float) -> None:
        self._metadata = counts, names
        self._core.learned(counts, names, now)

    def handed_over(self, number: int, now: float) -> None:
        self._core.handed_over(number, now)
        self._change_protocol(now)

    def fenced(self, code: ErrorCode, now: float) -> None:
        self._core.fenced(code, now)

    def poll_began(self, now: float) -> None:
        self._core.poll_began(now)

    def leave(self) -> MemberRequest | None:
        """Returns the last request; the next subscription begins with the consumer protocol again."""
        request = self._core.leave()
        self._core = self._consumer
        return request

    # -- answers

    def answered(self, ask: MemberRequest, response: Any, now: float) -> None:
        self._sender(ask).answered(ask, response, now)
        self._change_protocol(now)

    def failed(self, ask: MemberRequest, error: KafkaError, now: float) -> None:
        self._sender(ask).failed(ask, error, now)
        self._change_protocol(now)

    def _sender(self, ask: MemberRequest) -> ReconcilingMember | ClassicMember:
        """Returns the core that sent a request: an answer may come after the change."""
        return self._consumer if ask.api == HEARTBEAT else self._classic

    def _change_protocol(self, now: float) -> None:
        """Changes to the classic protocol if the other one is refused and no partition must be revoked any
        more."""
        consumer = self._consumer
        if consumer.phase is not ConsumerPhase.REFUSED or consumer.handover is not None:
            return
        subscription = consumer.subscription
        assert subscription is not None
        _log.info("classic_group_protocol_chosen", group=consumer.settings.group_id, reason=consumer.refusal)
        consumer.leave()
        self._classic.subscribe(subscription, now)
        if self._metadata is not None:
            self._classic.learned(*self._metadata, now)
        self._core = self._classic
