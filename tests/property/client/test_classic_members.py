"""Members of a classic group against a coordinator of a few lines: members come, go, die or are slow. No partition ever has
two readers, and when things calm down everyone has their share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.client.groups.assignors import assignors_of
from odradek.client.groups.classic import ClassicMember
from odradek.client.groups.member import MemberRequest, MemberSettings
from odradek.client.groups.values import Subscription
from odradek.client.network.backoff import Backoff
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.protocol.messages.groups.heartbeat import HeartbeatResponse
from odradek.protocol.messages.groups.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.protocol.messages.groups.sync_group import SyncGroupResponse

PARTITIONS = 5
ALL = frozenset(TopicPartition("t", number) for number in range(PARTITIONS))


class Middling:
    """Chance that is always the same."""

    def uniform(self) -> float:
        return 0.5

    def uuid(self) -> Any:
        raise AssertionError


@dataclass(slots=True)
class Player:
    """A consumer: its core, what its user reads, and requests that the coordinator has not answered."""

    core: ClassicMember
    reads: set[TopicPartition] = field(default_factory=set)
    gone: bool = False


class Coordinator:
    """Knows who joined; a round ends when all that it knows have joined again."""

    def __init__(self) -> None:
        self.generation = 0
        self.names = 0
        self.stable = True
        self.members: dict[str, bytes] = {}
        self.joining: dict[str, tuple[Player, MemberRequest, Any]] = {}
        self.syncing: dict[str, tuple[Player, MemberRequest]] = {}
        self.assignment: dict[str, bytes] | None = None

    def ask(self, player: Player, ask: MemberRequest, now: float) -> None:
        request: Any = ask.build(2)
        if ask.api == "JoinGroup":
            name = request.member_id
            if name and name not in self.members:
                response = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name="")
                player.core.answered(ask, response, now)
                return
            if not name:
                self.names += 1
                name = f"m{self.names}"
            self.stable = False
            self.members[name] = request.protocols[0].metadata
            self.joining[name] = (player, ask, request)
        elif ask.api == "LeaveGroup":
            self.forget(request.member_id)
        elif request.member_id not in self.members or request.generation_id != self.generation:
            self._answer(player, ask, ErrorCode.UNKNOWN_MEMBER_ID, now)
        elif ask.api == "Heartbeat":
            code = ErrorCode.NONE if self.stable else ErrorCode.REBALANCE_IN_PROGRESS
            self._answer(player, ask, code, now)
        else:
            self.syncing[request.member_id] = (player, ask)
            if request.assignments:
                self.assignment = {
                    assignment.member_id: assignment.assignment for assignment in request.assignments
                }
        self.settle(now)

    def forget(self, name: str) -> None:
        if self.members.pop(name, None) is not None:
            self.stable = False
        self.joining.pop(name, None)
        self.syncing.pop(name, None)

    def settle(self, now: float) -> None:
        """Answer what can be answered."""
        if self.syncing and not self.stable:
            for player, ask in self._drain(self.syncing):
                self._answer(player, ask, ErrorCode.REBALANCE_IN_PROGRESS, now)
        if self.joining and self.joining.keys() == self.members.keys():
            self._end_round(now)
        if self.syncing and self.assignment is not None and self.stable:
            waiting, self.syncing = self.syncing, {}
            for name, (player, ask) in waiting.items():
                response = SyncGroupResponse(assignment=self.assignment.get(name, b""))
                player.core.answered(ask, response, now)

    def _end_round(self, now: float) -> None:
        self.generation += 1
        self.stable, self.assignment = True, None
        round_, self.joining = self.joining, {}
        leader = min(round_)
        listed = [JoinGroupResponseMember(member_id=name, metadata=self.members[name]) for name in round_]
        for name, (player, ask, request) in round_.items():
            response = JoinGroupResponse(
                generation_id=self.generation,
                protocol_name=request.protocols[0].name,
                leader=leader,
                member_id=name,
                members=listed if name == leader else [],
            )
            player.core.answered(ask, response, now)

    @staticmethod
    def _drain(waiting: dict[str, tuple[Player, MemberRequest]]) -> list[tuple[Player, MemberRequest]]:
        joined = list(waiting.values())
        waiting.clear()
        return joined

    @staticmethod
    def _answer(player: Player, ask: MemberRequest, code: ErrorCode, now: float) -> None:
        response: Any = HeartbeatResponse(error_code=code)
        if ask.api == "SyncGroup":
            response = SyncGroupResponse(error_code=code)
        player.core.answered(ask, response, now)


class Play:
    """Players and the coordinator on one clock."""

    def __init__(self, strategy: str) -> None:
        self.now = 1.0
        self.strategy = strategy
        self.coordinator = Coordinator()
        self.players: list[Player] = []

    def enter(self) -> None:
        own = MemberSettings(group_id="g", assignors=assignors_of(self.strategy), max_poll_interval_s=60.0)
        core = ClassicMember(own, Backoff(100, 1_000, Middling()))
        core.learned({"t": PARTITIONS}, {}, self.now)
        core.subscribe(Subscription(topics=("t",)), self.now)
        self.players.append(Player(core))

    def leave(self, index: int) -> None:
        """With a farewell, or, if it had none to say, found dead at once."""
        player = self._living(index)
        if player is not None:
            player.gone = True
            player.reads.clear()
            name = player.core.member_id
            player.core.leave()
            self.coordinator.forget(name)
            self._forget_requests(player)

    def expel(self, index: int) -> None:
        """The coordinator has not heard of it for too long; itself it does not know yet."""
        player = self._living(index)
        if player is not None and player.core.member_id:
            name = player.core.member_id
            self._forget_requests(player, tell=True)
            self.coordinator.forget(name)

    def step(self) -> None:
        """Everything that is due; users do not poll."""
        self.now += 1.0
        for player in self.players:
            if not player.gone:
                for ask in player.core.due(self.now):
                    self.coordinator.ask(player, ask, self.now)
        self.coordinator.settle(self.now)

    def poll(self, index: int) -> None:
        """A user polls, and does what the group asks for."""
        player = self._living(index)
        if player is None:
            return
        player.core.poll_began(self.now)
        handover = player.core.handover
        if handover is None:
            return
        player.reads -= set(handover.revoked)
        if handover.taken is not None:
            player.reads = set(handover.taken)
        player.core.handed_over(handover.number, self.now)

    def readers_known_to_the_group(self) -> list[set[TopicPartition]]:
        """Who was expelled may go on reading until it learns of it: no protocol can prevent that."""
        return [
            player.reads
            for player in self.players
            if not player.gone
            and player.core.member_id in self.coordinator.members
            and not (player.core.handover is not None and player.core.handover.lost)
        ]

    def _living(self, index: int) -> Player | None:
        alive = [player for player in self.players if not player.gone]
        return alive[index % len(alive)] if alive else None

    def _forget_requests(self, player: Player, *, tell: bool = False) -> None:
        for waiting in (self.coordinator.joining, self.coordinator.syncing):
            for name in [name for name, entry in waiting.items() if entry[0] is player]:
                entry: Any = waiting.pop(name)
                self.coordinator.members.pop(name, None)
                if tell:
                    player.core.failed(entry[1], KafkaError(ErrorCode.NETWORK_EXCEPTION), self.now)


moves = st.lists(
    st.tuples(
        st.sampled_from(["enter", "leave", "expel", "step", "step", "step", "poll", "poll", "poll"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_no_partition_has_two_readers_and_in_the_end_each_has_one(strategy: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(moves)
    def check(chosen: list[tuple[str, int]]) -> None:
        play = Play(strategy)
        play.enter()
        for move, index in chosen:
            if move == "step":
                play.step()
            elif move == "enter":
                play.enter()
            else:
                getattr(play, move)(index)
            readers = play.readers_known_to_the_group()
            assert sum(map(len, readers)) == len(set().union(*readers))
        for _ in range(40):
            play.step()
            for index in range(len(play.players)):
                play.poll(index)
        alive = [player for player in play.players if not player.gone]
        if alive:
            assert set().union(*(player.reads for player in alive)) == ALL
            assert sum(len(player.reads) for player in alive) == PARTITIONS
            shares = [len(player.reads) for player in alive]
            assert max(shares) - min(shares) <= 1

    check()
