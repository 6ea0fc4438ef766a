"""How fast a program's state comes back from its changelog: `python -m benchmarks.streams.restore [--keys 1000000]`.

A program counts as many keys, so that its state and the changelog topic have them. Then it is started for one record more: once
with its checkpoint, and once without it. What the second start takes longer is the restore: the topic is read, and the state is
written again. There are two tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.odradek_node import OdradekNode
from odradek.client import Admin, NewTopic, Producer
from odradek.streams import Streams

TASKS: Final = 2
_ROWS_AT_ONCE: Final = 50_000
_WITHIN_S: Final = 1_200
_INPUT: Final = "restore-in"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    rounds = []
    with (
        OdradekNode(settings={"log.cleaner.enable": "false"}) as node,
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory,
    ):
        with Admin(node.bootstrap) as admin:
            admin.create_topics([NewTopic(_INPUT, TASKS)])
        checkpoint = Path(directory) / "checkpoint"
        _send(node.bootstrap, 0, arguments.keys)
        filled_s = _run(node.bootstrap, checkpoint)
        print(f"{arguments.keys:,} keys counted in {filled_s:.1f} s", flush=True)
        for number in range(arguments.rounds):
            _send(node.bootstrap, 0, 1)
            kept_s = _run(node.bootstrap, checkpoint)
            shutil.rmtree(checkpoint)
            _send(node.bootstrap, 0, 1)
            restored_s = _run(node.bootstrap, checkpoint)
            rounds.append({"with checkpoint s": kept_s, "without s": restored_s})
            rate = arguments.keys / max(0.001, restored_s - kept_s)
            print(
                f"round {number + 1}: a start takes {kept_s:.1f} s with its checkpoint, {restored_s:.1f} s without:"
                f" {rate:,.0f} keys/s; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    if arguments.json is not None:
        facts = {"keys": arguments.keys, "cpus": os.cpu_count(), "python": sys.version.split()[0]}
        arguments.json.write_text(json.dumps({"conditions": facts, "rounds": rounds}, indent=1) + "\n")


def _send(servers: str, first: int, count: int) -> None:
    with Producer(servers, linger_ms=5) as producer:
        for start in range(first, first + count, _ROWS_AT_ONCE):
            keys = [
                b"user-%09d" % number for number in range(start, min(start + _ROWS_AT_ONCE, first + count))
            ]
            columns = {"key": pa.array(keys, pa.binary()), "value": pa.array([b"x"] * len(keys), pa.binary())}
            producer.send_arrow(_INPUT, pa.RecordBatch.from_pydict(columns))
        producer.flush()


def _run(servers: str, checkpoint: Path) -> float:
    """Until all is read; the seconds that it takes."""
    app = Streams("restore", servers=servers, partitions=TASKS)
    counted = app.stream(_INPUT, key="STRING", value="STRING").group_by_key().count(name="counts")
    counted.to("restore-out", name="out")
    began = time.monotonic()
    with app.start(checkpoint=str(checkpoint), until_now=True) as running:
        if not running.wait(_WITHIN_S):
            raise TimeoutError(f"the program did not end within {_WITHIN_S} s")
    return time.monotonic() - began


if __name__ == "__main__":
    main()
