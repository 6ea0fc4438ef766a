"""Every public coroutine of the clients, cancelled at each suspension: the client works on, and nothing is half-done."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from types import coroutine
from typing import Any

import pytest

from odradek import AsyncAdmin, AsyncConsumer, AsyncProducer, NewTopic, RebalanceListener, TopicPartition
from odradek.client.admin.quotas import QuotaEntity
from odradek.client.admin.types import ConfigResource
from odradek.model.errors import KafkaError
from odradek.protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from odradek.retry import AsyncRetryConsumer, RetryPolicy
from odradek.security.acls import Acl, AclFilter, AclPattern
from odradek.testing import LocalBroker

SECONDS = 30
A = TopicPartition("t", 0)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        yield broker.address


@pytest.fixture(autouse=True)
async def topic(address: str) -> str:
    async with AsyncAdmin(address) as admin:
        if "t" not in await admin.list_topics():
            await admin.create_topics([NewTopic("t", partitions=2)])
    return "t"


@coroutine
def _steps(work: Coroutine[Any, Any, Any], suspended: Callable[[], None]) -> Generator[Any, Any, Any]:
    resume, argument = work.send, None
    while True:
        try:
            future = resume(argument)
        except StopIteration as stop:
            return stop.value
        suspended()
        try:
            argument, resume = (yield future), work.send
        except BaseException as error:  # noqa: BLE001 - passed on
            argument, resume = error, work.throw


async def cancelled_at(work: Coroutine[Any, Any, Any], number: int) -> bool:
    """Whether `work` was cancelled at its suspension of this number; it had fewer if not."""
    suspensions = itertools.count()
    loop = asyncio.get_running_loop()

    def suspended() -> None:
        if next(suspensions) == number:
            loop.call_soon(task.cancel)

    async def run() -> Any:
        return await _steps(work, suspended)

    task = asyncio.create_task(run())
    async with asyncio.timeout(SECONDS):
        await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        task.result()
    return next(suspensions) > number


async def at_each_await(one_round: Callable[[int], Awaitable[bool]]) -> int:
    """Rounds with the cancellation ever later, until one is not cancelled."""
    number = 0
    while await one_round(number):
        number += 1
        assert number < 200
    return number


def own_tasks() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("odradek")}


async def nothing_is_left() -> None:
    """Of closed clients no task is there, or will be after the next steps of the loop."""
    for _ in range(20):
        if not own_tasks():
            return
        await asyncio.sleep(0)
    assert own_tasks() == set()


# -- producers


async def _in_transaction(producer: AsyncProducer) -> None:
    producer.begin_transaction()
    await producer.send("t", b"x")


async def _with_a_delivered_record(producer: AsyncProducer) -> None:
    await _in_transaction(producer)
    await producer.flush()


async def _block(producer: AsyncProducer) -> None:
    async with producer.transaction():
        await producer.send("t", b"x")


async def _send_rows(producer: AsyncProducer) -> None:
    pa = pytest.importorskip("pyarrow")
    await producer.send_arrow("t", pa.RecordBatch.from_pydict({"value": [b"x", b"y"]}))


async def _send_offsets(producer: AsyncProducer) -> None:
    from odradek.client.groups.values import GroupMetadata

    await producer.send_offsets_to_transaction({A: 1}, GroupMetadata(group_id="offsets"))


async def _nothing(_: Any) -> None:
    return None


PLAIN: dict[str, Callable[[AsyncProducer], Coroutine[Any, Any, Any]]] = {
    "start": lambda producer: producer.start(),
    "send": lambda producer: producer.send("t", b"x"),
    "send_arrow": _send_rows,
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"x"),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "client_instance_id": lambda producer: producer.client_instance_id(),
    "close": lambda producer: producer.close(),
}
TRANSACTIONAL: dict[str, tuple[Any, Callable[[AsyncProducer], Coroutine[Any, Any, Any]]]] = {
    "commit_transaction": (_in_transaction, lambda producer: producer.commit_transaction()),
    "abort_transaction": (_with_a_delivered_record, lambda producer: producer.abort_transaction()),
    "prepare_transaction": (_in_transaction, lambda producer: producer.prepare_transaction()),
    "send_offsets_to_transaction": (_in_transaction, _send_offsets),
    "transaction": (_nothing, _block),
}


@pytest.mark.parametrize("name", PLAIN)
async def test_a_producer_works_after_a_cancelled(name: str, address: str) -> None:
    async def one_round(number: int) -> bool:
        producer = AsyncProducer(address, linger_ms=5)
        if name == "flush":
            await producer.send("t", b"x")
        was_cancelled = await cancelled_at(PLAIN[name](producer), number)
        if name != "close":
            assert (await producer.send_and_wait("t", b"after")).offset >= 0
            await producer.close()
        await nothing_is_left()
        return was_cancelled

    await at_each_await(one_round)


async def test_init_transactions_can_be_called_again_after_it_was_cancelled(address: str) -> None:
    async def one_round(number: int) -> bool:
        async with AsyncProducer(address, transactional_id=f"init-{next(_numbers)}") as producer:
            was_cancelled = await cancelled_at(producer.init_transactions(), number)
            if was_cancelled:
                await producer.init_transactions()
            await _block(producer)
        await nothing_is_left()
        return was_cancelled

    assert await at_each_await(one_round) > 0


@pytest.mark.parametrize("name", TRANSACTIONAL)
async def test_a_transaction_ends_after_a_cancelled(name: str, address: str) -> None:
    """The block that was cancelled, and the one after it, are over: nothing of them is open at the coordinator."""
    prepare, call = TRANSACTIONAL[name]
    transactional_id = f"ends-{next(_numbers)}"

    async def one_round(number: int) -> bool:
        async with AsyncProducer(address, transactional_id=transactional_id) as producer:
            await producer.init_transactions()
            await prepare(producer)
            was_cancelled = await cancelled_at(call(producer), number)
            if name != "transaction":
                await _see_through(producer)
            await _block(producer)
        await nothing_is_left()
        async with AsyncAdmin(address) as admin:
            open_ones = await admin.list_transactions()
        states = {listing.transactional_id: str(listing.state) for listing in open_ones}
        assert "Ongoing" not in states.get(transactional_id, "")
        return was_cancelled

    assert await at_each_await(one_round) > 0


async def _see_through(producer: AsyncProducer) -> None:
    """What the errors of a transaction say that is to be done."""
    try:
        producer.begin_transaction()
    except KafkaError as error:
        if "commit_transaction again" in error.message:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    else:
        await producer.abort_transaction()


async def _settled_state(address: str, transactional_id: str) -> str:
    """Returns the state of a transaction once its markers are written. An open one stays `Ongoing`."""
    async with AsyncAdmin(address) as admin, asyncio.timeout(SECONDS):
        while True:
            described = await admin.describe_transactions([transactional_id])
            state = described[transactional_id].state
            if not state.startswith("Prepare"):
                return state
            await asyncio.sleep(0.01)


async def test_a_cancelled_close_ends_the_transaction_that_is_open(address: str) -> None:
    async def one_round(number: int) -> bool:
        transactional_id = f"close-{next(_numbers)}"
        producer = AsyncProducer(address, transactional_id=transactional_id)
        await producer.init_transactions()
        await _in_transaction(producer)
        was_cancelled = await cancelled_at(producer.close(), number)
        await nothing_is_left()
        # A successor would abort it: so the coordinator is asked first.
        assert await _settled_state(address, transactional_id) in ("CompleteAbort", "Empty")
        async with AsyncProducer(address, transactional_id=transactional_id) as successor:
            await successor.init_transactions()
            await _block(successor)
        return was_cancelled

    await at_each_await(one_round)


# -- consumers

CONSUMER: dict[str, Callable[[AsyncConsumer], Coroutine[Any, Any, Any]]] = {
    "start": lambda consumer: consumer.start(),
    "assign": lambda consumer: consumer.assign([A]),
    "seek_to_timestamp": lambda consumer: consumer.seek_to_timestamp({A: 1}),
    "position": lambda consumer: consumer.position(A),
    "poll": lambda consumer: consumer.poll(5),
    "poll_arrow": lambda consumer: consumer.poll_arrow(5),
    "__anext__": lambda consumer: _first(consumer),
    "commit": lambda consumer: consumer.commit({A: 1}),
    "committed": lambda consumer: consumer.committed([A]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([A]),
    "end_offsets": lambda consumer: consumer.end_offsets([A]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({A: 1}),
    "partitions_for": lambda consumer: consumer.partitions_for("t"),
    "client_instance_id": lambda consumer: consumer.client_instance_id(),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "close": lambda consumer: consumer.close(),
}


async def _first(consumer: AsyncConsumer) -> Any:
    return await anext(aiter(consumer))


@pytest.mark.parametrize("name", CONSUMER)
async def test_a_consumer_works_after_a_cancelled(name: str, address: str) -> None:
    async with AsyncProducer(address) as producer:
        await producer.send("t", b"x", partition=0)

    async def one_round(number: int) -> bool:
        consumer = AsyncConsumer(address, group_id=f"g{next(_numbers)}", auto_offset_reset="earliest")
        await consumer.assign([A])
        was_cancelled = await cancelled_at(CONSUMER[name](consumer), number)
        if name != "close":
            if name == "unsubscribe":
                assert consumer.assignment() == ()
            await consumer.assign([A])
            consumer.seek(A, 0)
            assert (await consumer.poll(SECONDS))[0].offset == 0
            await consumer.close()
        await nothing_is_left()
        return was_cancelled

    await at_each_await(one_round)


class Slow(RebalanceListener):
    """Awaits in each method, and notes which were begun and which ended."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.ended: list[tuple[str, int]] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def _take(self, what: str, partitions: Any) -> None:
        self.begun.append((what, len(partitions)))
        await asyncio.sleep(0)
        await self.go_on.wait()
        self.ended.append((what, len(partitions)))

    async def partitions_assigned(self, partitions: Any) -> None:
        await self._take("assigned", partitions)

    async def partitions_revoked(self, partitions: Any) -> None:
        await self._take("revoked", partitions)


async def until_shared(*consumers: AsyncConsumer) -> None:
    """Polls until each consumer has an equal part of the two partitions."""
    async with asyncio.timeout(SECONDS):
        while {len(consumer.assignment()) for consumer in consumers} != {2 // len(consumers)}:
            await asyncio.gather(*(consumer.poll(0.05) for consumer in consumers))


CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 100}


@pytest.mark.parametrize("protocol", [CLASSIC, {}], ids=["classic", "default"])
async def test_a_handover_is_finished_whenever_polls_are_cancelled(
    protocol: dict[str, Any], address: str
) -> None:
    """Each poll of the first member is cancelled at its first suspension; the second gets its share all the same."""
    options: dict[str, Any] = {
        "group_id": f"g{next(_numbers)}",
        "auto_offset_reset": "earliest",
        **protocol,
    }
    listener = Slow()
    async with AsyncConsumer(address, **options) as first, AsyncConsumer(address, **options) as second:
        await first.subscribe(["t"], listener=listener)
        async with asyncio.timeout(SECONDS):
            while len(first.assignment()) != 2:
                await cancelled_at(first.poll(1), 0)
                await asyncio.sleep(0.01)
        await second.subscribe(["t"])
        async with asyncio.timeout(SECONDS):
            while not second.assignment() or len(first.assignment()) != 1:
                await cancelled_at(first.poll(1), 0)
                await second.poll(0.05)
        await until_shared(first, second)
        assert listener.begun == listener.ended
        assert listener.ended[0] == ("assigned", 2)
    await nothing_is_left()


async def test_the_next_poll_raises_what_a_listener_raised_after_the_cancellation(address: str) -> None:
    class Fails(Slow):
        async def partitions_assigned(self, partitions: Any) -> None:
            await super().partitions_assigned(partitions)
            raise ValueError("no room")

    listener = Fails()
    listener.go_on.clear()
    async with AsyncConsumer(address, group_id=f"g{next(_numbers)}") as consumer:
        await consumer.subscribe(["t"], listener=listener)
        async with asyncio.timeout(SECONDS):
            poll = asyncio.create_task(consumer.poll(SECONDS))
            while not listener.begun:
                await asyncio.sleep(0.01)
            poll.cancel()
            await asyncio.gather(poll, return_exceptions=True)
            assert poll.cancelled()
            listener.go_on.set()
            with pytest.raises(ValueError, match="no room"):
                await consumer.poll(SECONDS)
            await consumer.poll(0.01)
    assert listener.begun == [("assigned", 2)]


@pytest.mark.parametrize("protocol", [CLASSIC, {}], ids=["classic", "default"])
@pytest.mark.parametrize("name", ["unsubscribe", "close"])
async def test_a_member_whose_leaving_is_cancelled_has_left(
    name: str, protocol: dict[str, Any], address: str
) -> None:
    async def one_round(number: int) -> bool:
        options: dict[str, Any] = {"group_id": f"g{next(_numbers)}", **protocol}
        first, second = AsyncConsumer(address, **options), AsyncConsumer(address, **options)
        await first.subscribe(["t"])
        await until_shared(first)
        was_cancelled = await cancelled_at(getattr(first, name)(), number)
        await second.subscribe(["t"])
        await until_shared(second)  # far sooner than session.timeout.ms
        assert len(second.assignment()) == 2
        await second.close()
        if name == "unsubscribe":
            await first.subscribe(["t"])
            await until_shared(first)
            await first.close()
        await nothing_is_left()
        return was_cancelled

    await at_each_await(one_round)


# -- the admin client and retries

_RULE = Acl(
    AclPattern(AclResourceType.TOPIC, "t", PatternType.LITERAL),
    "User:u",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)
ADMIN: dict[str, tuple[Any, ...]] = {
    "create_topics": (["made"],),
    "delete_topics": (["never"],),
    "create_partitions": ({"t": 2},),
    "describe_topics": (["t"],),
    "describe_configs": ([ConfigResource.topic("t")],),
    "alter_configs": ({ConfigResource.topic("t"): {"retention.ms": "1000000"}},),
    "delete_records": ({A: 0},),
    "list_offsets": ({A: 0},),
    "describe_groups": (["g"],),
    "delete_groups": (["g"],),
    "list_group_offsets": ("g",),
    "alter_group_offsets": ("h", {A: 0}),
    "delete_group_offsets": ("h", [A]),
    "remove_group_members": ("g",),
    "alter_share_group_offsets": ("queue", {A: 0}),
    "delete_share_group_offsets": ("queue", ["t"]),
    "unregister_broker": (99,),
    "describe_transactions": (["x"],),
    "describe_producers": ([A],),
    "fence_producers": (["fenced"],),
    "alter_users": ({},),
    "elect_leaders": ([A],),
    "update_features": ({"transaction.version": 2},),
    "alter_quotas": ({QuotaEntity(user="u"): {"request_percentage": 50.0}},),
    "create_acls": ([_RULE],),
    "delete_acls": ([AclFilter(name="t")],),
    "renew_delegation_token": (b"hmac",),
    "expire_delegation_token": (b"hmac",),
    "move_replicas": (1, {A: "/not/a/log/directory"}),
    "reassign_partitions": ({A: [1]},),
}
_NEEDS_MORE = {
    "abort_transaction",
    "end_transactions",
    "send_offsets_to_transaction",
    "identity_after_commit",
}


def admin_calls() -> list[str]:
    return [
        name
        for name, method in inspect.getmembers(AsyncAdmin, inspect.iscoroutinefunction)
        if not name.startswith("_") and name not in _NEEDS_MORE
    ]


@pytest.mark.parametrize("name", admin_calls())
async def test_an_admin_client_works_after_a_cancelled(name: str, address: str) -> None:
    """Calls without a table row above are called without arguments; an error that the broker answers ends the rounds."""
    required = [
        parameter
        for parameter in inspect.signature(getattr(AsyncAdmin, name)).parameters.values()
        if parameter.default is parameter.empty and parameter.name != "self"
    ]
    assert name in ADMIN or not required

    async def one_round(number: int) -> bool:
        admin = AsyncAdmin(address)
        try:
            was_cancelled = await cancelled_at(getattr(admin, name)(*ADMIN.get(name, ())), number)
        except KafkaError:
            was_cancelled = False
        if name != "close":
            assert "t" in await admin.list_topics()
            await admin.close()
        await nothing_is_left()
        return was_cancelled

    await at_each_await(one_round)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_retrying_consumer_handles_all_whatever_is_cancelled(
    exactly_once: bool, address: str
) -> None:
    source = f"orders-{next(_numbers)}"
    async with AsyncAdmin(address) as admin:
        await admin.create_topics([NewTopic(source, partitions=1)])
    async with AsyncProducer(address) as producer:
        for number in range(5):
            await producer.send(source, b"%d" % number)
    handled: list[bytes] = []

    async def handle(record: Any) -> None:
        await asyncio.sleep(0)
        handled.append(record.value)

    policy = RetryPolicy(delays=(), exactly_once=exactly_once)
    group_id = f"r{next(_numbers)}"
    consumer = AsyncRetryConsumer(address, [source], group_id=group_id, policy=policy)
    async with asyncio.timeout(SECONDS):
        number = 0
        while set(handled) != {b"%d" % index for index in range(5)}:
            await cancelled_at(consumer.handle_some(handle), number)
            number += 1
    await at_each_await(lambda index: cancelled_at(consumer.close(), index))
    await nothing_is_left()
    async with AsyncAdmin(address) as admin:
        committed = await admin.list_group_offsets(group_id)
    partition = TopicPartition(source, 0)
    begin = committed[partition].offset if partition in committed else 0
    handled.clear()
    async with asyncio.timeout(SECONDS):
        async with AsyncRetryConsumer(address, [source], group_id=group_id, policy=policy) as successor:
            while len(handled) < 5 - begin:
                await successor.handle_some(handle)
    assert handled == [b"%d" % index for index in range(begin, 5)]


@pytest.mark.parametrize(
    ("client", "tried"),
    [
        (
            AsyncProducer,
            {*PLAIN, *TRANSACTIONAL, "init_transactions", "resume_transactions"},
        ),  # the last asks no broker
        (AsyncConsumer, {*CONSUMER, "subscribe"}),
        (AsyncRetryConsumer, {"handle_some", "run", "close"}),
    ],
)
def test_no_coroutine_is_left_out(client: type, tried: set[str]) -> None:
    public = {
        name
        for name, _ in inspect.getmembers(client, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert public - tried == set()
