"""From tables to topics, with a progress bar."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from hourly_departures import RESULT_TOPIC, last_event
from rich.console import Console
from show import progress
from source_data import messages

from odradek.client import Admin, NewTopic, Producer

PARTITIONS = {"flights": 4, RESULT_TOPIC: 4}
SHOW_EVERY = 4_096
KEEP_2013 = {"retention.ms": "-1"}
"""Records carry the time of their flight: with the usual retention of a week they would age out at once."""


def create_topics(servers: str, tables: Mapping[str, pd.DataFrame]) -> None:
    with Admin(servers) as admin:
        admin.create_topics(
            [
                NewTopic(name=name, partitions=PARTITIONS.get(name, 1), configs=KEEP_2013)
                for name in (*tables, RESULT_TOPIC)
            ]
        )


def send(servers: str, tables: Mapping[str, pd.DataFrame], console: Console) -> int:
    """Send every row of every table; the number of records, all of them acknowledged."""
    count = 0
    with (
        Producer(servers, compression_type="lz4") as producer,
        progress(console) as bars,
    ):
        for name, table in tables.items():
            bar = bars.add_task(f"{name:>9}", total=len(table))
            for sent, message in enumerate(messages(name, table), 1):
                producer.send(name, message.value, key=message.key, timestamp_ms=message.timestamp_ms)
                if sent % SHOW_EVERY == 0:
                    bars.update(bar, completed=sent)
            producer.flush()
            bars.update(bar, completed=len(table))
            count += len(table)
        last_hour = pd.to_datetime(tables["flights"]["time_hour"], utc=True).max()
        producer.send("flights", last_event(last_hour.to_pydatetime()))
    return count
