"""Bills orders; tries again when a service is down; keeps what cannot be billed, and bills it when the price list is mended."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from odradek import Admin, Consumer, ConsumerRecord, NewTopic, Producer, TopicPartition
from odradek.dead_letters.redrive import redrive
from odradek.dead_letters.sending_back import RedriveRequest
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.retry import Output, Reject, RetryConsumer
from odradek.testing import LocalBroker

CONFIG = tomllib.loads((Path(__file__).parent / "billing.toml").read_text())
ORDER_COUNT = 60
PRICES = {"tea": 3, "milk": 1}


class Till:
    """The handler. Its service is down for the first ten orders."""

    def __init__(self) -> None:
        self.calls = 0

    def bill(self, record: ConsumerRecord) -> Iterable[Output]:
        self.calls += 1
        if self.calls <= 10:
            raise ConnectionError("the ledger does not answer")
        if record.value is None:
            raise Reject("a record without a value is no order")
        order = json.loads(record.value)
        price = PRICES[order["item"]] * order["amount"]
        yield Output(topic="bills", key=record.key, value=json.dumps({**order, "price": price}).encode())


def take_orders(address: str) -> None:
    with Admin(address) as admin:
        admin.create_topics([NewTopic("orders", 2), NewTopic("bills", 1)])
    with Producer(address) as producer:
        for number in range(ORDER_COUNT):
            item = "saffron" if number % 25 == 5 else ("tea", "milk")[number % 2]
            producer.send(
                "orders", json.dumps({"number": number, "item": item, "amount": 2}), key=str(number)
            )


def work(address: str, till: Till, done: int) -> RetryConsumer:
    """Bill orders until so many are billed or dead."""
    with RetryConsumer.from_config({"bootstrap.servers": address, **CONFIG}) as consumer:
        while consumer.counts["handled"] + consumer.counts["dead_lettered"] < done:
            consumer.handle_some(till.bill)
    return consumer


def billed_once(address: str) -> int:
    """Orders with exactly one bill."""
    bills: Counter[int] = Counter()
    place = TopicPartition("bills", 0)
    with Consumer(
        address, isolation_level="read_committed", auto_offset_reset="earliest", value_deserializer=json.loads
    ) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            bills.update(record.value["number"] for record in consumer.poll() if record.value is not None)
    return sum(1 for count in bills.values() if count == 1)


def main() -> None:
    with LocalBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        take_orders(broker.address)
        till = Till()
        consumer = work(broker.address, till, ORDER_COUNT)
        print(f"tried again: {consumer.counts['retried']}")
        print(f"dead letters: {consumer.counts['dead_lettered']}")
        print(f"billed once: {billed_once(broker.address)}")

        PRICES["saffron"] = 90  # the price list is mended
        with DeadLetterTopic(broker.address, "orders.billing.dlq") as letters:
            for letter, _ in letters.letters():
                print(f"  {letter.place}: {letter.failure.exception}: {letter.failure.message}")
            sent = redrive(letters, RedriveRequest()).sent_to  # odradek dlq redrive orders.billing.dlq
        print(f"sent back: {sent['orders']}")
        work(broker.address, till, sent["orders"])
        print(f"billed once after the redrive: {billed_once(broker.address)}")


if __name__ == "__main__":
    main()
