"""An online shop as services that read the same topics: each gets every event, and none knows of the others.

python examples/shop/shop.py                      # a broker of its own, some orders, and what each service wrote
python examples/shop/shop.py HOST:PORT            # serve a broker's topics until Ctrl-C

registrations ─┬─▶ users (a table) ◀─ joined by e-mail and archive
               └─▶ e-mail ─▶ emails            orders ─┬─▶ e-mail ─▶ emails
                                                       ├─▶ archive ─▶ archive
                                                       ├─▶ sales ─▶ sales
                                                       └─▶ fraud ─▶ suspects
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.streams import Stream, Streams, Table
from odradek.testing import LocalBroker

COMPACTED = {"cleanup.policy": "compact"}
TOPICS = {"registrations": {}, "orders": {}, "emails": {}, "archive": {}, "sales": COMPACTED, "suspects": {}}
ORDERS_PER_CARD = 3
"""In ten minutes; who orders more is looked at."""
WAIT_S = 300


def shop(servers: str | None = None) -> Streams:
    """The whole shop. Without servers it can be tested."""
    app = Streams("shop", servers=servers)
    registrations = app.stream("registrations", key="STRING", value="name STRING, email STRING")
    orders = app.stream("orders", key="STRING", value="user STRING, item STRING, amount DOUBLE, card STRING")
    users = registrations.to_table(name="users")
    email(registrations, orders, users)
    archive(orders, users)
    sales(orders)
    fraud(orders)
    return app


def email(registrations: Stream, orders: Stream, users: Table) -> None:
    """A welcome for each new user, a receipt for each order. The key is the address."""
    welcomes = registrations.map(key="email", value="concat('Welcome, ', name, '!') AS value")
    receipts = orders.join(users, on="user", name="receipts").map(
        key="email", value="concat(name, ', you ordered: ', item) AS value"
    )
    welcomes.merge(receipts).to("emails", name="send-emails")


def archive(orders: Stream, users: Table) -> None:
    """Every order as it was, with what was known of its user then. The order's number is the key."""
    orders.join(users, on="user", how="left", name="archived").to("archive", name="keep-orders")


def sales(orders: Stream) -> None:
    """A table: what was sold of each item."""
    orders.group_by("item").agg("count(*) AS orders", "sum(amount) AS amount", name="sales").to(
        "sales", name="write-sales"
    )


def fraud(orders: Stream) -> None:
    """Cards with too many orders in ten minutes, or of several users."""
    by_card = orders.group_by("card").sliding("10 minutes", grace="1 minute")
    seen = by_card.agg("count(*) AS orders", "count(DISTINCT user) AS users", name="cards").to_stream()
    seen.filter(f"orders > {ORDERS_PER_CARD} OR users > 1").map(
        key="card", value=["orders", "users", "window_start AS since"]
    ).to("suspects", name="report-suspects")


def send_some_events(servers: str) -> None:
    """Two users. Ann buys, then her card is stolen and used by Bob, again and again."""
    now_ms = int(time.time() * 1_000) - 3_600_000
    people = {"ann": "Ann", "bob": "Bob"}
    orders = [("ann", "tea", 3.5, "c1"), ("bob", "cup", 8.0, "c2"), ("ann", "pot", 25.0, "c1")]
    orders += [("bob", "tea", 3.5, "c1")] * 3
    with Producer(servers) as producer:

        def send(topic: str, key: str, minute: int, **value: object) -> None:
            producer.send(
                topic, json.dumps(value).encode(), key=key.encode(), timestamp_ms=now_ms + 60_000 * minute
            )

        for user, name in people.items():
            send("registrations", user, 0, name=name, email=f"{user}@example.org")
        for number, (user, item, amount, card) in enumerate(orders):
            send("orders", f"o{number}", number + 1, user=user, item=item, amount=amount, card=card)


def make_topics(servers: str) -> None:
    with Admin(servers) as admin:
        known = admin.list_topics()
        admin.create_topics(
            [NewTopic(name, 1, configs=how) for name, how in TOPICS.items() if name not in known]
        )


def show(servers: str) -> None:
    """What each service wrote."""
    topics = ("emails", "archive", "sales", "suspects")
    with Admin(servers) as admin:
        partitions = {name: topic.topic_partitions for name, topic in admin.describe_topics(topics).items()}
    for topic in topics:
        print(f"\n{topic}")
        with Consumer(servers, isolation_level="read_committed") as consumer:
            consumer.assign(partitions[topic])
            consumer.seek_to_beginning()
            for record in consumer.poll(2.0):
                print(f"  {(record.key or b'').decode():20} {(record.value or b'').decode()}")


def main() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="shop-") as directory:
        if len(sys.argv) > 1:
            make_topics(sys.argv[1])
            with shop(sys.argv[1]).start(checkpoint="shop-checkpoint") as run:
                run.wait()
            return
        with LocalBroker() as broker:
            make_topics(broker.address)
            send_some_events(broker.address)
            with shop(broker.address).start(checkpoint=directory, until_now=True) as run:
                run.wait(WAIT_S)
            show(broker.address)


if __name__ == "__main__":
    main()
