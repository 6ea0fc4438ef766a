"""A log that is another one than before, and a process that dies: what the view says afterwards is what the topic says."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek import Admin, NewTopic, Producer
from odradek.telemetry.events import event_of
from odradek.testing.local import LocalBroker
from odradek.views import TableView

MakeTopic = Callable[..., str]


def send(broker: LocalBroker, rows: dict[bytes, bytes]) -> None:
    with Producer(broker.address) as producer:
        for key, value in rows.items():
            producer.send("totals", value, key=key)


@pytest.mark.parametrize(
    ("later", "restarts"), [(1, 0), (30, 1)], ids=["shorter", "longer, under a later epoch"]
)
def test_a_log_that_lost_its_end_builds_it_again(
    tmp_path: Path, later: int, restarts: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker's disk is an older copy: what the view had read is gone, and other records take those offsets."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    broker = LocalBroker(data=disk)
    with broker:
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic("totals", 1, 1)])
        send(broker, {b"ann": b"1", b"bob": b"2"})
    shutil.copytree(disk, copy)
    with broker:
        send(broker, {b"lost-%d" % number: b"3" for number in range(10)})
        with TableView.open(broker.address, "totals", directory=tmp_path / "view", timeout_s=60) as view:
            assert len(view) == 12
    shutil.rmtree(disk)
    copy.rename(disk)
    for _ in range(restarts):
        with broker:
            pass
    with broker:
        send(broker, {b"new-%02d" % number: b"4" for number in range(later)})
        with TableView.open(broker.address, "totals", directory=tmp_path / "view", timeout_s=60) as view:
            view.wait_until("now")
            expected = {"ann": 1, "bob": 2} | {f"new-{number:02d}": 4 for number in range(later)}
            assert dict(view) == expected
    assert "view_rebuilt" in [event_of(record) for record in caplog.records]


_CHILD = """
    import sys
    from odradek.views import RocksDBLimits, TableView

    limits = RocksDBLimits(write_buffer_bytes=64 << 10)
    with TableView.open(sys.argv[1], sys.argv[2], directory=sys.argv[3], limits=limits) as view:
        while True:
            view.wait_until("now")
            print(sum(each.applied_offset for each in view.freshness().partitions), flush=True)
"""


def test_kill_9_of_a_view_that_follows_loses_and_doubles_nothing(
    odradek_broker: LocalBroker, make_topic: MakeTopic, open_view: Callable[..., TableView], tmp_path: Path
) -> None:
    topic = make_topic(2)
    rows: dict[str, Any] = {}
    with Producer(odradek_broker.address) as producer:
        for life in range(3):
            child = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    textwrap.dedent(_CHILD),
                    odradek_broker.address,
                    topic,
                    str(tmp_path / "view"),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            assert child.stdout is not None
            child.stdout.readline()
            for number in range(1_500):
                key = f"key-{number * 7 % 500:04d}"
                value = None if number % 11 == life else life * 10_000 + number
                producer.send(topic, None if value is None else b"%d" % value, key=key.encode())
                rows[key] = value
            child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            child.communicate()
        producer.flush()
    view = open_view(topic, directory=tmp_path / "view")
    assert dict(view) == {key: value for key, value in rows.items() if value is not None}
