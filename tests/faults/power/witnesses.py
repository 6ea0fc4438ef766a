"""Clients that remember what the brokers acknowledged: records, transactions with their offsets, group commits, topics.

`Witnesses.testimony()` is what was acknowledged up to now. All clients are unmodified ones (confluent-kafka).
"""

from __future__ import annotations

import logging
import threading
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.access.clients import ClientSettings
from tests.faults.ledger import UNKNOWN
from tests.faults.thread_position import thread_position
from tests.faults.writers import Writer

LEDGER: Final = "ledger"
TRANSFERS: Final = "transfers"
CLAIMS: Final = "claims"
"""Nothing is in this topic: offsets of it are committed."""
PARTITIONS: Final = 3
_ASK_SECONDS: Final = 30.0
_IDLE_MS: Final = 8_000
"""As in `copier.py`: librdkafka looks for a coordinator that moved only when some connection comes or goes."""
_TOPIC_EVERY: Final = 10
_ABORT_EVERY: Final = 4

COMMITTED: Final = "committed"
ABORTED: Final = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """What was acknowledged before some instant."""

    records: dict[str, array[int]]
    """By writer: the place of each record that was sent, or less than 0 where it is not known."""
    transactions: dict[str, dict[int, str]]
    """By transactional id: the transactions that are known to have ended, and how."""
    group_offsets: dict[str, int]
    topics: list[str]

    @property
    def count(self) -> int:
        known_count = sum(1 for places in self.records.values() for place in places if place != UNKNOWN)
        return known_count + sum(len(ended) for ended in self.transactions.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "records": {name: list(answers) for name, answers in self.records.items()},
            "transactions": self.transactions,
            "group_offsets": self.group_offsets,
            "topics": self.topics,
        }


class _Thread:
    """Does `step` until `stop` is called; what a step raises is a failure to report, and ends it."""

    def __init__(self, name: str, step: Callable[[int], None]) -> None:
        self.name = name
        self.step = 0
        self.failure: str | None = None
        self._stopping = threading.Event()
        self._do = step
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self, timeout_s: float) -> str | None:
        """Where it is, if it has not ended by then."""
        self._thread.join(timeout_s)
        where = thread_position(self._thread)
        return f"in its step {self.step} {where}" if where is not None else None

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._do(self.step)
            except (confluent_kafka.KafkaException, AssertionError) as error:
                self.failure = f"{self.name}: {error}"
                return
            self.step += 1
            self._stopping.wait(0.01)


@dataclass(slots=True)
class Transactions:
    """Transaction n puts "NAME:n" into every partition, and commits offset n+1 of `CLAIMS` for the group NAME."""

    name: str
    address: str
    ended: dict[int, str] = field(default_factory=dict)
    log: Path | None = None
    """Where the client says what it does."""
    trouble: str = ""
    """The last error that was tried again."""
    _producer: Any = None
    _group: Any = None

    def step(self, number: int) -> None:
        """A retriable failure is tried again; any other leaves the transaction unknown, and begins again."""
        try:
            if self._producer is None:
                self._begin_again()
            self._transact(number)
        except confluent_kafka.KafkaException as error:
            if error.args[0].fatal():
                self._producer = None
                return
            if error.args[0].txn_requires_abort():
                self._again(lambda: self._producer.abort_transaction(_ASK_SECONDS))
                return
            raise

    def _begin_again(self) -> None:
        self._producer = transactional_producer(self.address, self.name, self.log)
        self._again(lambda: self._producer.init_transactions(_ASK_SECONDS))
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.address, "group.id": self.name, "log_level": 0}
        )
        self._group = consumer.consumer_group_metadata()
        consumer.close()

    def _transact(self, number: int) -> None:
        self._producer.begin_transaction()
        for partition in range(PARTITIONS):
            self._producer.produce(TRANSFERS, f"{self.name}:{number}".encode(), partition=partition)
        claim = [confluent_kafka.TopicPartition(CLAIMS, 0, number + 1)]
        self._again(lambda: self._producer.send_offsets_to_transaction(claim, self._group, _ASK_SECONDS))
        if number % _ABORT_EVERY == _ABORT_EVERY - 1:
            self._producer.flush(_ASK_SECONDS)
            self._again(lambda: self._producer.abort_transaction(_ASK_SECONDS))
            self.ended[number] = ABORTED
        else:
            self._again(lambda: self._producer.commit_transaction(_ASK_SECONDS))
            self.ended[number] = COMMITTED

    def _again(self, call: Callable[[], None], tries: int = 20) -> None:
        for left in reversed(range(tries)):
            try:
                call()
                return
            except confluent_kafka.KafkaException as error:
                if not error.args[0].retriable() or not left:
                    raise
                self.trouble = str(error)


def transactional_producer(address: str, name: str, log: Path | None = None) -> Any:
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "transactional.id": name,
        "linger.ms": 2,
        "connections.max.idle.ms": _IDLE_MS,
        "log_level": 0,
    }
    if log is None:
        return confluent_kafka.Producer(settings)
    logger = logging.Logger(name)
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return confluent_kafka.Producer({**settings, "debug": "eos,protocol", "log_level": 7}, logger=logger)


class Commits:
    """Commits offsets 1, 2, 3, ... for a group, one after another, and now and then makes a topic."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.acknowledged = -1
        self.topics: list[str] = []
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False, "log_level": 0}
        )
        self._admin = AdminClient({"bootstrap.servers": address, "log_level": 0})

    def step(self, number: int) -> None:
        try:
            claim = [confluent_kafka.TopicPartition(CLAIMS, 0, number + 1)]
            (committed,) = self._consumer.commit(offsets=claim, asynchronous=False)
            if committed.error is None:
                self.acknowledged = number + 1
            if number % _TOPIC_EVERY == _TOPIC_EVERY - 1:
                topic = f"made-{number}"
                self._admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(_ASK_SECONDS)
                self.topics.append(topic)
        except (confluent_kafka.KafkaException, TimeoutError):
            return  # nothing was acknowledged: the next number is tried

    def close(self) -> None:
        self._consumer.close()


class Witnesses:
    """All of them together. Topics of theirs that are there already are taken as they are."""

    def __init__(self, address: str, *, per_second: int, logs: Path | None = None) -> None:
        """`logs`: a directory for what the transactional client says of itself."""
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        wanted = [NewTopic(LEDGER, PARTITIONS, 3), NewTopic(TRANSFERS, PARTITIONS, 3), NewTopic(CLAIMS, 1, 3)]
        there = admin.list_topics(timeout=_ASK_SECONDS).topics
        missing = [topic for topic in wanted if topic.topic not in there]
        for future in admin.create_topics(missing).values() if missing else ():
            future.result(_ASK_SECONDS)
        clients = ClientSettings(address=address)
        self.writers = [
            Writer(name, clients, LEDGER, partitions=PARTITIONS, per_second=per_second // 2)
            for name in ("w1", "w2")
        ]
        self._transactions = Transactions("t1", address, log=logs / "client-t1.log" if logs else None)
        self._commits = Commits("g1", address)
        self._threads = [_Thread("t1", self._transactions.step), _Thread("g1", self._commits.step)]

    def start(self) -> None:
        for worker in (*self.writers, *self._threads):
            worker.start()

    def testimony(self) -> Testimony:
        return Testimony(
            records={writer.name: array("q", writer.ledger.places) for writer in self.writers},
            transactions={self._transactions.name: dict(self._transactions.ended)},
            group_offsets={self._commits.name: self._commits.acknowledged},
            topics=list(self._commits.topics),
        )

    def has_begun(self) -> bool:
        """Something of every kind has been acknowledged."""
        return (
            all(writer.ledger.acknowledged_count for writer in self.writers)
            and COMMITTED in self._transactions.ended.values()
            and self._commits.acknowledged > 0
        )

    def failures(self) -> list[str]:
        return [thread.failure for thread in self._threads if thread.failure is not None]

    def finish(self, timeout_s: float) -> list[str]:
        """Stop; what remained unanswered though the brokers are there. With no time left, no one is waited for."""
        for thread in self._threads:
            thread.stop()
        unanswered = [
            f"{writer.name}: {left} records unanswered"
            for writer in self.writers
            if (left := writer.finish(timeout_s)) and timeout_s
        ]
        if timeout_s:
            stuck = [thread.join(timeout_s) for thread in self._threads]
            trouble = f" (last error: {self._transactions.trouble})" if self._transactions.trouble else ""
            unanswered += [f"stuck {where}{trouble}" for where in stuck if where is not None]
        return unanswered + self.failures()
