"""Kafka's Java share consumer and ours do the same, and share one group: what the one releases, the other may get.

Both are driven by the same commands: `Member` is one of them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import pytest
from tests.interop.languages.prepare import AbsentError, share_member
from tests.interop.server import Server, running, share_settings

from odradek import (
    AcknowledgeType,
    Admin,
    ConfigResource,
    PartialFailureError,
    Producer,
    ShareConsumer,
    ShareRecord,
)
from odradek.client import IllegalStateError, ResourceType

LOCK_MS = 6_000
LONG_MS = 30_000
"""How long a poll waits for records that must come."""
SHORT_MS = 1_000
"""How long a poll waits where nothing may come."""
ATTEMPTS_MAX = 5
"""How often a test begins again that was too slow to renew a lock."""
SETTINGS = {"share.acknowledgement.mode": "explicit", "share.acquire.mode": "record_limit"}
MakeTopic = Callable[..., str]


class Delivered(NamedTuple):
    """A record as a member saw it."""

    offset: int
    value: str
    delivery_count: int


class Member(Protocol):
    """A share consumer in its own process, or in ours."""

    def poll(self, ms: int = LONG_MS) -> list[Delivered]:
        """Returns the records of the first poll that has some; nothing after `ms`."""

    def acknowledge(self, kind: str, *offsets: int) -> None: ...

    def commit(self) -> list[str]:
        """Returns the names of the errors with which brokers refused acknowledgements."""

    def refuses_to_poll(self) -> bool:
        """Tells whether a poll is refused because records of the last one were not decided about."""

    def close(self) -> None: ...

    def kill(self) -> None:
        """Ends it without a word to the broker, where that is possible."""


class OurMember:
    """Ours, in this process."""

    def __init__(self, bootstrap: str, topic: str, group: str, settings: Mapping[str, str]) -> None:
        options: dict[str, Any] = {key.replace(".", "_"): value for key, value in settings.items()}
        if "max_poll_records" in options:
            options["max_poll_records"] = int(options["max_poll_records"])
        self._consumer = ShareConsumer(bootstrap, group_id=group, **options)
        self._consumer.subscribe(topic)
        self._polled: dict[int, ShareRecord] = {}

    def poll(self, ms: int = LONG_MS) -> list[Delivered]:
        self._polled = {record.offset: record for record in self._consumer.poll(ms / 1000)}
        return [
            Delivered(record.offset, (record.value or b"").decode(), record.delivery_count)
            for record in self._polled.values()
        ]

    def acknowledge(self, kind: str, *offsets: int) -> None:
        for offset in offsets:
            self._consumer.acknowledge(self._polled[offset], AcknowledgeType[kind])

    def commit(self) -> list[str]:
        try:
            self._consumer.commit()
        except PartialFailureError as error:
            return [refusal.code.name for refusal in error.errors.values()]
        return []

    def refuses_to_poll(self) -> bool:
        try:
            self._consumer.poll(0.2)
        except IllegalStateError:
            return True
        return False

    def close(self) -> None:
        self._consumer.close()

    kill = close


class JavaMember:
    """Kafka's own, in a process of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str, settings: Mapping[str, str]) -> None:
        try:
            command = share_member()
        except AbsentError as reason:
            pytest.skip(f"absent: {reason}")
        self._process = subprocess.Popen(
            [*command, bootstrap, topic, group, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._is_closed = False

    def _run(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the Java member ended with {self._process.wait()}"
        return json.loads(line)

    def poll(self, ms: int = LONG_MS) -> list[Delivered]:
        return [Delivered(*record) for record in self._run(do="poll", ms=ms)["records"]]

    def acknowledge(self, kind: str, *offsets: int) -> None:
        assert self._run(do="acknowledge", type=kind, offsets=offsets) == {}

    def commit(self) -> list[str]:
        names: list[str] = self._run(do="commit")["errors"]
        return names

    def refuses_to_poll(self) -> bool:
        return "refused" in self._run(do="poll", ms=200)

    def close(self) -> None:
        """Ends the input, upon which the program closes its consumer."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._process.communicate(timeout=LONG_MS / 1000)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            raise

    def kill(self) -> None:
        self._process.kill()
        self.close()


KINDS: dict[str, Callable[..., Member]] = {"ours": OurMember, "java": JavaMember}


@pytest.fixture(scope="module")
def server(server_kind: Any, make_node: Any) -> Iterator[Server]:
    """A broker whose share groups lock records for six seconds."""
    with running(server_kind, make_node, share_settings(LOCK_MS)) as started:
        yield started


class Queue:
    """A topic with records `0`, `1`, … in one partition, and a group that reads it from the beginning."""

    def __init__(self, bootstrap: str, topic: str, stack: ExitStack) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"queue-{topic}"
        self._stack = stack
        with Admin(bootstrap) as admin:
            earliest = {"share.auto.offset.reset": "earliest"}
            admin.alter_configs({ConfigResource(ResourceType.GROUP, self.group): earliest})

    def fill(self, count: int) -> None:
        with Producer(self.bootstrap) as producer:
            for number in range(count):
                producer.send(self.topic, b"%d" % number, partition=0)

    def member(self, kind: str, **settings: str) -> Member:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        member = KINDS[kind](self.bootstrap, self.topic, self.group, SETTINGS | named)
        self._stack.callback(member.close)
        return member


@pytest.fixture
def a_queue(bootstrap: str, topic: MakeTopic) -> Iterator[Callable[[], Queue]]:
    """Makes a queue; its members are closed in the end."""
    with ExitStack() as stack:
        yield lambda: Queue(bootstrap, topic(), stack)


@pytest.fixture
def queue(a_queue: Callable[[], Queue]) -> Queue:
    return a_queue()


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def other(kind: str) -> str:
    """The kind that `kind` is not."""
    return next(name for name in KINDS if name != kind)


# -- the same program in both


def test_what_is_released_comes_back_counted_and_nothing_else_does(queue: Queue, kind: str) -> None:
    queue.fill(3)
    member = queue.member(kind)
    assert member.poll() == [(0, "0", 1), (1, "1", 1), (2, "2", 1)]
    member.acknowledge("ACCEPT", 0)
    member.acknowledge("RELEASE", 1)
    member.acknowledge("REJECT", 2)
    assert member.commit() == []
    assert member.poll() == [(1, "1", 2)]
    member.acknowledge("ACCEPT", 1)
    assert member.commit() == []
    assert member.poll(SHORT_MS) == []


def test_a_record_is_delivered_five_times_and_given_up(queue: Queue, kind: str) -> None:
    queue.fill(1)
    member = queue.member(kind)
    for delivery in range(1, 6):
        assert member.poll() == [(0, "0", delivery)]
        member.acknowledge("RELEASE", 0)
        assert member.commit() == []
    assert member.poll(SHORT_MS) == []


def test_a_poll_before_every_record_is_decided_about_is_refused(queue: Queue, kind: str) -> None:
    queue.fill(2)
    member = queue.member(kind)
    assert len(member.poll()) == 2
    member.acknowledge("ACCEPT", 0)
    assert member.refuses_to_poll()
    member.acknowledge("ACCEPT", 1)
    assert not member.refuses_to_poll()


def test_an_acceptance_after_the_lock_has_ended_is_refused(queue: Queue, kind: str, other: str) -> None:
    queue.fill(1)
    late, quick = queue.member(kind), queue.member(other)
    assert late.poll() == [(0, "0", 1)]
    [again] = quick.poll()
    assert (again.offset, again.value) == (0, "0")
    assert again.delivery_count >= 2  # more where a fetch that Java's left at the broker came first
    late.acknowledge("ACCEPT", 0)
    assert late.commit() == ["INVALID_RECORD_STATE"]
    quick.acknowledge("ACCEPT", 0)
    assert quick.commit() == []


# -- one group of both


def test_a_lock_that_one_renews_keeps_the_record_from_the_other(
    a_queue: Callable[[], Queue], kind: str, other: str
) -> None:
    """A member that renews too late has lost the lock. So has this test, on a machine that is busy; then it begins again."""
    for _ in range(ATTEMPTS_MAX):
        queue = a_queue()
        slow, idle = queue.member(kind), queue.member(other)
        if is_kept_by_renewals(queue, slow, idle):
            return
    pytest.fail(f"no member came to renew its lock within {LOCK_MS} ms, in {ATTEMPTS_MAX} attempts")


def is_kept_by_renewals(queue: Queue, slow: Member, idle: Member) -> bool:
    """Returns whether the member renewed its lock in time until the first one had ended for long. AssertionError if it lost the
    record in spite of that.

    The other member does not poll before: Java's leaves a fetch at the broker, which would lock the next record for it.
    """
    queue.fill(1)
    assert slow.poll() == [(0, "0", 1)]  # which joins the group
    slow.acknowledge("ACCEPT", 0)
    assert slow.commit() == []
    locked_after = time.monotonic()
    queue.fill(1)
    records = slow.poll()
    for _ in range(LOCK_MS // SHORT_MS + 2):
        renewed_after = time.monotonic()
        slow.acknowledge("RENEW", *(record.offset for record in records))
        errors = slow.commit()
        if is_over(locked_after):
            return False
        assert (records, errors) == ([(1, "0", 1)], [])
        locked_after = renewed_after
        records, records_of_other = slow.poll(), idle.poll(SHORT_MS)
        if is_over(locked_after):
            return False
        assert (records, records_of_other) == ([(1, "0", 1)], [])
    slow.acknowledge("ACCEPT", 1)
    errors = slow.commit()
    if is_over(locked_after):
        return False
    assert errors == []
    assert idle.poll(LOCK_MS + SHORT_MS) == []
    return True


def is_over(locked_after: float) -> bool:
    """Returns whether a lock that began after this moment may have ended."""
    return time.monotonic() - locked_after >= LOCK_MS / 1000


def test_what_one_releases_or_has_when_it_closes_the_other_gets(queue: Queue, kind: str, other: str) -> None:
    queue.fill(4)
    first, second = queue.member(kind, max_poll_records="4"), queue.member(other)
    assert [record.offset for record in first.poll()] == [0, 1, 2, 3]
    first.acknowledge("ACCEPT", 0)
    first.acknowledge("RELEASE", 1)
    first.acknowledge("REJECT", 2)
    first.close()
    seen: list[Delivered] = []
    while len(seen) < 2:
        records = second.poll()
        assert records, f"only {seen} came"
        seen += records
        second.acknowledge("ACCEPT", *(record.offset for record in records))
        assert second.commit() == []
    assert sorted(seen) == [(1, "1", 2), (3, "3", 2)]
    assert second.poll(SHORT_MS) == []


def test_what_a_killed_java_member_had_is_delivered_to_ours(queue: Queue) -> None:
    queue.fill(3)
    doomed = queue.member("java")
    assert [record.offset for record in doomed.poll()] == [0, 1, 2]
    doomed.acknowledge("ACCEPT", 0)
    assert doomed.commit() == []
    doomed.kill()
    heir = queue.member("ours")
    assert sorted(heir.poll()) == [(1, "1", 2), (2, "2", 2)]


class Ledger:
    """What members of one group saw and did."""

    def __init__(self) -> None:
        self.deliveries: dict[int, list[tuple[str, int]]] = defaultdict(list)
        """The members that got each offset, with the delivery count."""
        self.done: set[int] = set()
        self._renewed: dict[int, str] = {}
        """Records whose lock a member has renewed: its next poll returns them once more, and it is no other delivery."""

    def work(self, name: str, member: Member) -> None:
        """Handles one poll of a member."""
        by_kind: dict[str, list[int]] = defaultdict(list)
        for record in member.poll(SHORT_MS):
            by_kind[self._decide(name, record)].append(record.offset)
        for kind, offsets in by_kind.items():
            member.acknowledge(kind, *offsets)
        assert member.commit() == []
        self.done.update(by_kind["ACCEPT"], by_kind["REJECT"])

    def _decide(self, name: str, record: Delivered) -> str:
        """Returns what the member does: it releases some records at their first delivery, and renews others at first."""
        offset = record.offset
        assert offset not in self.done, f"{name} got {record}, which is done"
        assert record.value == str(offset)
        if offset in self._renewed:
            assert (self._renewed[offset], record.delivery_count) == self.deliveries[offset][-1], record
            assert self._renewed.pop(offset) == name
            return "ACCEPT"
        self.deliveries[offset].append((name, record.delivery_count))
        if offset % 5 == 1 and record.delivery_count == 1:
            return "RELEASE"
        if offset % 7 == 3:
            return "REJECT"
        if offset % 11 == 5:
            self._renewed[offset] = name
            return "RENEW"
        return "ACCEPT"


def test_members_of_both_clients_handle_every_record_once_and_count_deliveries_alike(queue: Queue) -> None:
    count = 120
    queue.fill(count)
    members = {kind: queue.member(kind, max_poll_records="7") for kind in KINDS}
    ledger = Ledger()
    turns = 0
    while len(ledger.done) < count:
        turns += 1
        assert turns < 40 * len(members), f"{count - len(ledger.done)} records are left"
        for name, member in members.items():
            ledger.work(name, member)
    for member in members.values():
        assert member.poll(LOCK_MS) == []
    for offset in range(count):
        expected = [1, 2] if offset % 5 == 1 else [1]
        assert [number for _, number in ledger.deliveries[offset]] == expected, offset
    shares = Counter(name for seen in ledger.deliveries.values() for name, _ in seen)
    assert set(shares) == set(KINDS)
    passed_on = {tuple(name for name, _ in seen) for seen in ledger.deliveries.values() if len(seen) == 2}
    assert passed_on & {("java", "ours"), ("ours", "java")}, "no record that one released went to the other"
