"""What never lets a cluster rest: topics made and deleted, one broker that comes and goes, and clients that mean no good."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from typing import Final

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.client_thread import ClientThread
from tests.hostile.attack import known_to
from tests.hostile.generated import Batch, Generator, connect, play
from tests.hostile.values import Blowing, array_places
from tests.kit.wire import BlockingWire, parse_address, request_frame

from odradek.cli.serving.broker_processes import BrokerProcess, Fleet
from odradek.protocol.api import APIS

_ADMIN_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0
_BLOWN_EVERY: Final = 40
_BLOWN_BYTES: Final = 20_000
_UNFINISHED_EVERY: Final = 20
_UNFINISHED_MAX: Final = 8
_UNFINISHED: Final = (8 << 20).to_bytes(4, "big") + bytes(4 << 20)


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
    """Means no good to the brokers that stay: generated frames, long arrays, and frames that are never finished."""

    def __init__(self, fleet: Fleet, seed: int, *, per_second: float) -> None:
        super().__init__("stranger")
        self.frame_count = 0
        self.faults: list[str] = []
        self._addresses = [parse_address(broker.address) for broker in fleet.brokers[:-1]]
        self._per_second = per_second
        known = known_to(BlockingWire(self._addresses[0]))
        self._generator = Generator(seed, known)
        self._blowing = Blowing(known)
        self._chance = random.Random(seed)
        self._unfinished: deque[BlockingWire] = deque()

    def _run(self) -> None:
        try:
            for number in itertools.count():
                batch = self._generator.batch(number)
                if self._stopping.wait(len(batch.frames) / self._per_second):
                    return
                self._send(number, batch)
                self.frame_count += len(batch.frames)
                self.busy_since = time.monotonic()
        finally:
            for peer in self._unfinished:
                peer.abandon()

    def _send(self, number: int, batch: Batch) -> None:
        address = self._addresses[number % len(self._addresses)]
        try:
            with connect(address, _ANSWER_SECONDS) as peer:
                self.faults += [fault.what for fault in play(peer, batch, reads_answers=False)]
            if number % _BLOWN_EVERY == 0:
                with connect(address, _ANSWER_SECONDS) as peer:
                    peer.send(self._long_array())
                    peer.receive()
            if number % _UNFINISHED_EVERY == 0:
                self._leave_unfinished(BlockingWire(self._chance.choice(self._addresses)))
        except OSError as error:
            self.troubles[type(error).__name__] += 1

    def _long_array(self) -> bytes:
        """Returns a request as `tests/hostile/attacks/elements.py` makes them, of an API that is served; at random."""
        places = []
        while not places:
            api = APIS[self._chance.choice(sorted(self._blowing.known.api_keys))]
            places = list(array_places(api.request, api.versions.max)) if not api.internal else []
        place, are_equal = self._chance.choice(places), self._chance.random() < 0.5
        version = api.versions.max
        count = self._blowing.element_count(api.request, version, place, _BLOWN_BYTES, are_equal=are_equal)
        return request_frame(
            self._blowing.request(api.request, version, place, count=count, are_equal=are_equal), version
        )

    def _leave_unfinished(self, peer: BlockingWire) -> None:
        """The oldest of a few goes when another comes."""
        self._unfinished.append(peer)
        peer.send(_UNFINISHED)
        if len(self._unfinished) > _UNFINISHED_MAX:
            self._unfinished.popleft().abandon()
