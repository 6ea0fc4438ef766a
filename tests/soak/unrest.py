"""What never lets a cluster rest: topics made and deleted, one broker that comes and goes, and clients that mean no good."""

from __future__ import annotations

import itertools
import random
import time
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.client_thread import ClientThread
from tests.hostile.attack import known_to
from tests.hostile.generated import Generator, connect, play
from tests.hostile.peer import Peer, parse_address

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet

_ADMIN_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0


class TopicChurn(ClientThread):
    """Makes a topic, writes to it, deletes it; and again."""

    def __init__(self, address: str, *, pause_s: float) -> None:
        super().__init__("topic-churn")
        self.made_count = 0
        self._address = address
        self._pause_s = pause_s

    def _run(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        producer = confluent_kafka.Producer({"bootstrap.servers": self._address, "log_level": 0})
        for number in itertools.count():
            if self._stopping.wait(self._pause_s):
                return
            name = f"passing-{number}"
            try:
                admin.create_topics([NewTopic(name, 3, 3)])[name].result(_ADMIN_SECONDS)
                self.made_count += 1
                for partition in range(3):
                    producer.produce(name, bytes(1000), partition=partition)
                producer.flush(_ADMIN_SECONDS)
                admin.delete_topics([name])[name].result(_ADMIN_SECONDS)
            except KafkaException as error:
                self.troubles[error.args[0].name()] += 1
            self.busy_since = time.monotonic()


class Visitor(ClientThread):
    """One broker leaves, cleanly or not, and comes back. The others stay, so that their figures can be read as series."""

    def __init__(self, broker: BrokerProcess, chance: random.Random, *, pause_s: float) -> None:
        super().__init__("visitor")
        self.visits = 0
        self._broker = broker
        self._chance = chance
        self._pause_s = pause_s

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s * self._chance.uniform(0.5, 1.5)):
            leave = self._chance.choice((self._broker.kill, self._broker.stop))
            leave()
            self._stopping.wait(self._chance.uniform(0.0, self._pause_s / 4))
            self._broker.start()
            self._broker.wait_until_ready()
            self.visits += 1
            self.busy_since = time.monotonic()


class Stranger(ClientThread):
    """Sends generated frames, most of them damaged, to the brokers that stay."""

    def __init__(self, fleet: Fleet, seed: int, *, per_second: float) -> None:
        super().__init__("stranger")
        self.frame_count = 0
        self.faults: list[str] = []
        self._brokers = fleet.brokers[:-1]
        self._per_second = per_second
        self._generator = Generator(seed, known_to(Peer(parse_address(self._brokers[0].address))))

    def _run(self) -> None:
        addresses = [parse_address(broker.address) for broker in self._brokers]
        for number in itertools.count():
            batch = self._generator.batch(number)
            if self._stopping.wait(len(batch.frames) / self._per_second):
                return
            try:
                with connect(addresses[number % len(addresses)], _ANSWER_SECONDS) as peer:
                    self.faults += [fault.what for fault in play(peer, batch, reads_answers=False)]
            except OSError as error:
                self.troubles[type(error).__name__] += 1
            self.frame_count += len(batch.frames)
            self.busy_since = time.monotonic()
