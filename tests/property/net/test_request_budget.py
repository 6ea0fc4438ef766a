"""The budget of large requests under every interleaving: never above its bound, no one starves, and it drains to nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.net.request_budget import (
    ORDINARY_BYTES,
    PARKED_SECONDS,
    PROGRESS_BYTES,
    STALL_SECONDS,
    RequestBudget,
    Share,
)

KIBIBYTE = 1024
LARGEST = 24 * 1024 * KIBIBYTE
LIMITS = [LARGEST, LARGEST + 1, LARGEST + ORDINARY_BYTES, 2 * LARGEST, 4 * LARGEST]
MANY_ROUNDS = 4000

sizes = st.one_of(
    st.integers(65 * KIBIBYTE, ORDINARY_BYTES), st.integers(ORDINARY_BYTES + 1, LARGEST), st.just(LARGEST)
)


class Sender:
    """A connection that sends one frame: all of it, or a part and then nothing; its request may never be answered."""

    def __init__(self, frame_bytes: int, sends_bytes: int, *, is_answered: bool) -> None:
        self.frame_bytes = frame_bytes
        self.sends_bytes = min(sends_bytes, frame_bytes)
        self.is_answered = is_answered
        self.share: Share | None = None
        self.has_ended = False

    @property
    def is_honest(self) -> bool:
        return self.sends_bytes == self.frame_bytes and self.is_answered


senders = st.builds(
    Sender,
    sizes,
    st.one_of(st.just(LARGEST), st.just(LARGEST), st.integers(0, LARGEST)),
    is_answered=st.sampled_from([True, True, True, False]),
)


class Room:
    """Plays a budget's connections, as the server does, and checks the bound after every step."""

    def __init__(self, limit_bytes: int, everyone: list[Sender]) -> None:
        self.limit_bytes = limit_bytes
        self.budget = RequestBudget(limit_bytes, LARGEST)
        self.now = 0.0
        self.receiving: dict[Sender, None] = {}
        self.parked: list[Sender] = []
        self.dropped: list[Sender] = []
        for number, sender in enumerate(everyone):
            sender.share = self.budget.begin(sender, sender.frame_bytes, is_of_broker=number % 7 == 6)
            self._ask(sender)

    def _ask(self, sender: Sender) -> None:
        assert sender.share is not None
        if self.budget.request_room(sender.share, self.now):
            self.receiving[sender] = None
        self.check_bound()

    def check_bound(self) -> None:
        assert 0 <= self.budget.held_bytes <= self.limit_bytes
        assert self.budget.counters.peak_bytes <= self.limit_bytes

    def receive(self, sender: Sender) -> None:
        share = sender.share
        assert share is not None
        share.received_bytes = min(share.granted_bytes, sender.sends_bytes)
        if share.received_bytes == sender.frame_bytes:
            del self.receiving[sender]
            self.budget.complete(share, self.now)
            self.parked.append(sender)
        elif share.received_bytes == share.granted_bytes:
            del self.receiving[sender]
            self._ask(sender)

    def answer(self, sender: Sender) -> None:
        self.parked.remove(sender)
        self.end(sender)

    def end(self, sender: Sender) -> None:
        assert sender.share is not None
        sender.share.release()
        sender.has_ended = True
        self.admit()

    def admit(self) -> None:
        for share in self.budget.admit(self.now):
            assert isinstance(share.owner, Sender)
            self.receiving[share.owner] = None
        self.check_bound()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while (late := self.budget.overdue(self.now)) is not None:
            sender = late.owner
            assert isinstance(sender, Sender)
            self.dropped.append(sender)
            self.receiving.pop(sender, None)
            if sender in self.parked:
                self.parked.remove(sender)
            self.end(sender)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(LIMITS), st.lists(senders, min_size=1, max_size=40), st.data())
def test_every_honest_frame_is_received_whatever_the_others_do(
    limit_bytes: int, everyone: list[Sender], data: st.DataObject
) -> None:
    room = Room(limit_bytes, everyone)
    chance = data.draw(st.randoms(use_true_random=False))
    for _ in range(MANY_ROUNDS):
        movable = [sender for sender in room.receiving if sender.share and _can_move(sender)]
        answerable = [sender for sender in room.parked if sender.is_answered]
        if movable and (not answerable or chance.random() < 0.7):
            room.receive(chance.choice(movable))
        elif answerable:
            room.answer(chance.choice(answerable))
        elif room.budget.waiting_count:
            room.pass_time(max(STALL_SECONDS, PARKED_SECONDS))
        else:
            break
    assert not room.budget.waiting_count, "nothing waits for ever"
    assert all(sender.has_ended for sender in everyone if sender.is_honest)
    assert not any(sender.is_honest for sender in room.dropped), "who sends and is answered is never dropped"
    for sender in everyone:
        if not sender.has_ended:
            room.end(sender)
    assert room.budget.held_bytes == 0
    assert _is_as_new(room.budget)


def _can_move(sender: Sender) -> bool:
    share = sender.share
    assert share is not None
    return share.received_bytes < min(share.granted_bytes, sender.sends_bytes) or (
        share.received_bytes == sender.sends_bytes == share.granted_bytes
    )


def _is_as_new(budget: RequestBudget) -> bool:
    """The largest frame has all the room it needs, once more."""
    share = budget.begin(None, LARGEST)
    while share.granted_bytes < LARGEST:
        if not budget.request_room(share, 0.0):
            return False
    share.release()
    return budget.held_bytes == 0


@given(st.lists(sizes, min_size=2, max_size=30))
def test_frames_of_one_rank_are_admitted_in_the_order_in_which_they_began_to_wait(frames: list[int]) -> None:
    budget = RequestBudget(LARGEST, LARGEST)
    shares = [budget.begin(number, size) for number, size in enumerate(frames)]
    admitted = [share for share in shares if budget.request_room(share, 0.0)]
    while len(admitted) < len(shares):
        current = admitted[-1]
        while current.granted_bytes < current.frame_bytes:
            assert budget.request_room(current, 0.0), "the favoured frame never waits again"
        current.release()
        admitted += budget.admit(0.0)
    assert admitted == shares


@given(st.floats(0.001, 100.0), st.integers(0, 3 * PROGRESS_BYTES))
def test_while_no_one_waits_no_one_is_overdue(seconds: float, received_bytes: int) -> None:
    budget = RequestBudget(4 * LARGEST, LARGEST)
    share = budget.begin(None, LARGEST)
    assert budget.request_room(share, 0.0)
    share.received_bytes = received_bytes
    assert budget.overdue(seconds) is None
