"""Clients where they cannot work: in a second thread, task, event loop or process they say so, and the first user goes on."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from odradek import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    NewTopic,
    Producer,
    TopicPartition,
)
from odradek.client import ClientClosedError, ConcurrentUseError, IllegalStateError
from odradek.retry import RetryConsumer
from odradek.testing import LocalBroker

SECONDS = 30.0
A = TopicPartition("t", 0)
RECORDS = 2_000


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with LocalBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("t", partitions=1)])
        with Producer(broker.address) as producer:
            for number in range(RECORDS):
                producer.send("t", b"%d" % number)
        yield broker.address


# -- processes


def words_of_a_child(work: Callable[[], object]) -> str:
    """What `work` raises in a forked process, or that it raised nothing."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        said = "not finished"
        try:
            said = f"returned {work()!r}"
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write_end, said.encode()[:4_000])
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end, "rb") as pipe:
        return pipe.read().decode()


PRODUCER_CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", b"child"),
    "send_with_all": lambda producer: producer.send("t", b"child", key=b"k", partition=0, headers={"h": b""}),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"child"),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "init_transactions": lambda producer: producer.init_transactions(),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "commit_transaction": lambda producer: producer.commit_transaction(),
    "abort_transaction": lambda producer: producer.abort_transaction(),
}
CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "poll": lambda consumer: consumer.poll(0.1),
    "iterate": lambda consumer: next(iter(consumer)),
    "assign": lambda consumer: consumer.assign([A]),
    "seek": lambda consumer: consumer.seek(A, 0),
    "pause": lambda consumer: consumer.pause([A]),
    "position": lambda consumer: consumer.position(A),
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async({A: 1}),
    "committed": lambda consumer: consumer.committed([A]),
    "end_offsets": lambda consumer: consumer.end_offsets([A]),
}


@pytest.mark.parametrize("name", PRODUCER_CALLS)
def test_a_producer_is_refused_in_a_forked_process(name: str, address: str) -> None:
    with Producer(address, transactional_id="forked") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("t", b"before")
            assert words_of_a_child(partial(PRODUCER_CALLS[name], producer)).startswith(
                "IllegalStateError: this producer"
            )
            producer.send("t", b"after").result(SECONDS)


@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_a_consumer_is_refused_in_a_forked_process(name: str, address: str) -> None:
    with Consumer(address, group_id="forked", auto_offset_reset="earliest") as consumer:
        consumer.assign([A])
        first = consumer.poll(SECONDS, 1)
        assert words_of_a_child(partial(CONSUMER_CALLS[name], consumer)).startswith(
            "IllegalStateError: this consumer"
        )
        assert consumer.poll(SECONDS, 1)[0].offset == first[0].offset + 1


def test_a_forked_process_that_closes_and_forgets_disturbs_its_parent_in_nothing(address: str) -> None:
    clients: list[Any] = [
        Producer(address),
        Consumer(address, group_id="closing", auto_offset_reset="earliest"),
        Admin(address),
        RetryConsumer(address, ["t"], group_id="closing-retry"),
    ]
    producer, consumer, admin, retry = clients

    def close_all() -> str:
        producer.close()
        consumer.close()
        admin.close()
        retry.close()
        del_all()
        return "done"

    def del_all() -> None:
        for client in clients:
            client.__dict__.pop("_closed", None)
        clients.clear()
        gc.collect()

    producer.send("t", b"x").result(SECONDS)
    consumer.assign([A])
    consumer.poll(SECONDS, 1)
    assert words_of_a_child(close_all) == "returned 'done'"
    assert words_of_a_child(lambda: admin.list_topics()).startswith("IllegalStateError")
    assert words_of_a_child(lambda: retry.handle_some(print)).startswith("IllegalStateError")
    assert producer.send("t", b"x").result(SECONDS).offset > 0
    assert consumer.poll(SECONDS, 1)
    assert "t" in admin.list_topics()
    for client in (producer, consumer, admin, retry):
        client.close()


def test_a_forked_process_makes_clients_of_its_own(address: str) -> None:
    def work() -> int:
        with Producer(address) as own:
            return own.send("t", b"x").result(SECONDS).partition

    with Producer(address) as producer:
        producer.send("t", b"x")
        assert words_of_a_child(work) == "returned 0"


def test_a_record_under_way_at_the_fork_is_not_waited_for_in_the_child(address: str) -> None:
    with Producer(address, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        delivery = producer.send("t", b"x")
        assert words_of_a_child(delivery.result).startswith("IllegalStateError: this record is on its way")
        producer.flush()
        assert delivery.result().offset > 0


# -- event loops

ASYNC_CALLS: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "send": (AsyncProducer, lambda client: client.send("t", b"x")),
    "flush": (AsyncProducer, lambda client: client.flush()),
    "close producer": (AsyncProducer, lambda client: client.close()),
    "partitions": (AsyncProducer, lambda client: client.partitions_for("t")),
    "poll": (AsyncConsumer, lambda client: client.poll(0.1)),
    "assign": (AsyncConsumer, lambda client: client.assign([A])),
    "position": (AsyncConsumer, lambda client: client.position(A)),
    "ends": (AsyncConsumer, lambda client: client.end_offsets([A])),
    "close consumer": (AsyncConsumer, lambda client: client.close()),
    "topics": (AsyncAdmin, lambda client: client.list_topics()),
    "close admin": (AsyncAdmin, lambda client: client.close()),
}


@pytest.mark.parametrize("name", ASYNC_CALLS)
async def test_a_client_is_refused_on_another_loop_and_works_on_its_own(name: str, address: str) -> None:
    make, call = ASYNC_CALLS[name]

    async def use(client: Any) -> None:
        if make is AsyncProducer:
            await client.send_and_wait("t", b"x")
        elif make is AsyncConsumer:
            await client.assign([A])
            assert await client.poll(SECONDS, 1)
        else:
            assert "t" in await client.list_topics()

    more = {"auto_offset_reset": "earliest"} if make is AsyncConsumer else {}
    async with make(address, **more) as client:
        await use(client)
        with pytest.raises(IllegalStateError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, _awaited(partial(call, client)))
        await use(client)


async def _awaited(make: Callable[[], Any]) -> Any:
    return await make()


@pytest.mark.parametrize("make", [AsyncProducer, AsyncConsumer, AsyncAdmin])
def test_a_client_whose_loop_has_ended_is_closed_without_a_word(make: Any, address: str) -> None:
    client = make(address)
    asyncio.run(_awaited(client.start))
    with pytest.raises(IllegalStateError, match="belongs to another event loop"):
        asyncio.run(_awaited(client.start))
    asyncio.run(_awaited(client.close))
    gc.collect()


# -- threads and tasks


def test_two_threads_of_one_consumer_lose_and_double_nothing(address: str) -> None:
    offsets: list[int] = []
    refused = threading.Event()
    with Consumer(address, group_id="threads", auto_offset_reset="earliest", max_poll_records=7) as consumer:
        consumer.subscribe(["t"])

        def work() -> None:
            while len(offsets) < RECORDS:
                try:
                    offsets.extend(record.offset for record in consumer.poll(0.1))
                except ConcurrentUseError:
                    refused.set()

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(offsets) == len(set(offsets))
    assert set(range(RECORDS)) <= set(offsets)


def test_a_second_thread_is_refused_while_the_first_polls_and_may_close(address: str) -> None:
    in_listener, go_on = threading.Event(), threading.Event()
    consumer = Consumer(address, group_id="second", auto_offset_reset="latest")
    consumer.assign([A])
    consumer.poll(0.01)

    def poll() -> None:
        in_listener.set()
        with pytest.raises(ClientClosedError):
            consumer.poll(SECONDS)
        go_on.set()

    consumer.seek_to_end()
    thread = threading.Thread(target=poll)
    thread.start()
    in_listener.wait()
    refused = 0
    while not refused:  # it takes a moment until the poll has begun
        for call in (lambda: consumer.poll(0), lambda: consumer.seek(A, 5), lambda: consumer.pause([A])):
            try:
                call()
            except ConcurrentUseError:
                refused += 1
    assert consumer.end_offsets([A])[A] > 0
    assert consumer.assignment() == (A,)
    consumer.close()
    assert go_on.wait(SECONDS)
    thread.join()


async def test_a_second_task_is_refused_while_the_first_polls(address: str) -> None:
    async with AsyncConsumer(address, auto_offset_reset="latest") as consumer:
        await consumer.assign([A])
        first = asyncio.create_task(consumer.poll(SECONDS))
        await asyncio.sleep(0)
        for call in (consumer.poll(0), consumer.poll_arrow(0), consumer.assign([A]), anext(aiter(consumer))):
            with pytest.raises(ConcurrentUseError, match="another task"):
                await call
        await consumer.end_offsets([A])
        async with AsyncProducer(address) as producer:
            end = (await producer.send_and_wait("t", b"x")).offset
        records = await first
        while not records:
            records = await consumer.poll(SECONDS)
        assert records[-1].offset == end


async def test_a_listener_may_use_its_consumer_in_tasks_of_its_own(address: str) -> None:
    from odradek import RebalanceListener

    positions: list[int] = []

    class Asks(RebalanceListener):
        async def partitions_assigned(self, partitions: Any) -> None:
            positions.extend(await asyncio.gather(*(consumer.position(place) for place in partitions)))
            await asyncio.wait_for(consumer.seek_to_timestamp(dict.fromkeys(partitions, 0)), SECONDS)

    async with AsyncConsumer(address, group_id="asks", auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(["t"], listener=Asks())
        async with asyncio.timeout(SECONDS):
            while not positions:
                await consumer.poll(0.1)
    assert positions == [0]


@pytest.mark.parametrize("group_id", [{}, {"group_id": "nothing"}])
def test_reading_nothing_is_refused(group_id: dict[str, Any], address: str) -> None:
    with Consumer(address, **group_id) as consumer:
        for read in (lambda: consumer.poll(0), lambda: next(iter(consumer)), lambda: consumer.poll_arrow(0)):
            with pytest.raises(IllegalStateError, match=r"subscribe\(\) or assign\(\) first"):
                read()
        consumer.assign([A])
        consumer.poll(0)
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="reads nothing yet"):
            consumer.poll(0)
