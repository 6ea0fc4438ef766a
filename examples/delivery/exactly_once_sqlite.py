"""Exactly once, into a database of one's own: results and offsets are committed in one database transaction.

The broker's own offsets are not used. The worker begins where its database says, so what the database holds and where the
worker stands can never part. This works with every database that has transactions, and needs none in the broker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from scene import Crash, at_end, order_ends, play

from odradek import Consumer, TopicPartition

SCHEMA = """
CREATE TABLE IF NOT EXISTS receipts (number INTEGER);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition));
"""


def work(address: str, directory: Path, crash: Crash) -> None:
    database = sqlite3.connect(directory / "shop.db")
    database.executescript(SCHEMA)
    with Consumer(address, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        ends = order_ends(consumer)
        consumer.assign(ends)
        for topic, partition, following in database.execute("SELECT topic, partition, next FROM offsets"):
            consumer.seek(TopicPartition(topic, partition), following)
        while not at_end(consumer, ends):
            orders = consumer.poll(max_records=50)
            with database:  # one transaction: committed at the end of the block, rolled back if it fails
                database.executemany("INSERT INTO receipts VALUES (?)", [(order.value,) for order in orders])
                crash.record(len(orders))
                crash.here()
                database.executemany(
                    "INSERT OR REPLACE INTO offsets VALUES (?, ?, ?)",
                    [(*partition, offset) for partition, offset in consumer.positions().items()],
                )
    database.close()


def results(_: str, directory: Path) -> Iterable[int]:
    database = sqlite3.connect(directory / "shop.db")
    numbers = [number for (number,) in database.execute("SELECT number FROM receipts")]
    database.close()
    return numbers


if __name__ == "__main__":
    play("Exactly once: results and offsets in one SQLite transaction", __file__, work, results)
