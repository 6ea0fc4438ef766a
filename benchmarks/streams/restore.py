"""How fast a program's state comes back from its changelog: `python -m benchmarks.streams.restore [--keys 1000000]`.

A program counts as many keys, so that its state and the changelog topic have them. Then it is started for one record more: once
with its checkpoint, and once without it. What the second start takes longer is the restore: the topic is read, and the state is
written again. There are two tasks.

While keys are counted, a batch has 200,000 new ones. The time of the last batches beside that of the first shows whether a
batch costs more where there is more state. Memory is that of this process and all below it, without the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import psutil
import pyarrow as pa

from benchmarks.odradek_node import OdradekNode
from benchmarks.watch import memory
from odradek.client import Admin, NewTopic, Producer
from odradek.streams import Streams

TASKS: Final = 2
_ROWS_AT_ONCE: Final = 50_000
_WITHIN_S: Final = 3_600
_INPUT: Final = "restore-in"
_SAMPLE_S: Final = 2.0
_BATCHES_COMPARED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run of the program, until all was read."""

    seconds: float
    batch_ms: Sequence[int]
    """The time of each batch that read records, the first of which also starts workers."""
    peak_bytes: int
    """The most memory (PSS) of the program's processes."""


@dataclass(slots=True)
class PeakOfAll:
    """Samples the memory of this process and all below it until left."""

    peak_bytes: int = 0
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def _sample(self) -> None:
        program = psutil.Process()
        while True:
            processes = [program, *program.children(recursive=True)]
            brokers = {broker.pid for broker in processes if "serve" in _words(broker)}
            self.peak_bytes = max(
                self.peak_bytes, sum(_pss(process.pid) for process in processes if process.pid not in brokers)
            )
            if self._done.wait(_SAMPLE_S):
                return


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return words


def _pss(pid: int) -> int:
    try:
        return memory(pid).pss_bytes
    except (OSError, TypeError):  # it has ended, and its file is gone or empty
        return 0


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
        filling = _run(node.bootstrap, checkpoint)
        checkpoint_bytes = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
        print(_filled(arguments.keys, filling, checkpoint_bytes), flush=True)
        for number in range(arguments.rounds):
            _send(node.bootstrap, 0, 1)
            kept_s = _run(node.bootstrap, checkpoint).seconds
            shutil.rmtree(checkpoint)
            _send(node.bootstrap, 0, 1)
            restored = _run(node.bootstrap, checkpoint)
            restored_s = restored.seconds
            rounds.append(
                {"with checkpoint s": kept_s, "without s": restored_s, "peak bytes": restored.peak_bytes}
            )
            longer_s = restored_s - kept_s
            rate = (
                f"{arguments.keys / longer_s:,.0f} keys/s"
                if longer_s > 0
                else "the restore takes no longer than to read the checkpoint"
            )
            print(
                f"round {number + 1}: a start takes {kept_s:.1f} s with its checkpoint, {restored_s:.1f} s without:"
                f" {rate}, {restored.peak_bytes >> 20:,} MB; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    if arguments.json is not None:
        facts = {
            "keys": arguments.keys,
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
            "filled s": filling.seconds,
            "checkpoint bytes": checkpoint_bytes,
            "batch ms": list(filling.batch_ms),
            "peak bytes": filling.peak_bytes,
        }
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


def _run(servers: str, checkpoint: Path) -> Started:
    """Runs the program until it has read all."""
    app = Streams("restore", servers=servers, partitions=TASKS)
    counted = app.stream(_INPUT, key="STRING", value="STRING").group_by_key().count(name="counts")
    counted.to("restore-out", name="out")
    began = time.monotonic()
    with PeakOfAll() as memory_peak, app.start(checkpoint=str(checkpoint), until_now=True) as running:
        if not running.wait(_WITHIN_S):
            raise TimeoutError(f"the program did not end within {_WITHIN_S} s")
        (query,) = running.queries.values()
        batches = [progress for progress in query.recentProgress if progress.numInputRows]
    return Started(
        seconds=time.monotonic() - began,
        batch_ms=[progress.batchDuration for progress in batches],
        peak_bytes=memory_peak.peak_bytes,
    )


def _filled(keys: int, filling: Started, checkpoint_bytes: int) -> str:
    """Returns what counting the keys took, as text."""
    text = (
        f"{keys:,} keys counted in {filling.seconds:.1f} s, {filling.peak_bytes >> 20:,} MB;"
        f" the checkpoint has {checkpoint_bytes / 1e6:,.0f} MB"
    )
    later = filling.batch_ms[1:]
    if len(later) < 2 * _BATCHES_COMPARED:
        return text
    first, last = (
        statistics.median(part) for part in (later[:_BATCHES_COMPARED], later[-_BATCHES_COMPARED:])
    )
    return f"{text}; a batch takes {first:,.0f} ms at first, {last:,.0f} ms at the end"


if __name__ == "__main__":
    main()
