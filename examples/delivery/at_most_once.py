"""At most once: commit first, then work. What is under way when the worker dies is lost, and nothing is done twice."""

from __future__ import annotations

from pathlib import Path

from scene import ORDERS, RECEIPTS, Crash, at_end, order_ends, play, receipts

from odradek import Consumer, Producer


def work(address: str, _: Path, crash: Crash) -> None:
    with (
        Producer(address) as producer,
        Consumer(
            address,
            group_id="workers",
            group_instance_id="worker-1",  # a worker that restarts has its partitions back at once:
            group_protocol="classic",  # the consumer protocol waits until the session of a killed worker ends
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        consumer.subscribe([ORDERS])
        ends = order_ends(consumer)
        while not at_end(consumer, ends):
            orders = consumer.poll(max_records=50)
            if not orders:
                continue
            consumer.commit()  # from here on, no one reads these orders again
            for order in orders:
                crash.record()
                crash.here()
                producer.send(RECEIPTS, order.value)
            producer.flush()


if __name__ == "__main__":
    play("At most once: commit, then work", __file__, work, receipts)
