"""Many small pipelines: `python -m benchmarks.many_pipelines [--pipelines 50] [--seconds 30] [--wake] [--json FILE]`.

One broker process, one supervisor process, and so many pipelines that sleep, each with an input of its own. Measured are

- *idle*: the supervisor's CPU as a share of one core, its resident memory, and both for each pipeline;
- *wake* (needs Java): from a record of one pipeline's input to its copy in the output. That is a start of Spark.

`load` is the load average before: the share of a core says more than times on a machine that does other things, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.odradek_node import OdradekNode, serve_environment
from benchmarks.watch import cpu_seconds, memory
from odradek import Admin, Consumer, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.membership import supervisor_of
from odradek.pipelines.status import Phase, PipelineStatus
from odradek.pipelines.status_writer import StatusWriter
from odradek.pipelines.store import PipelineStore
from odradek.runtime.real_clock import SystemClock

PATIENCE_S: Final = 90.0
SETTLE_S: Final = 5.0
PROGRAM: Final = """
import os, sys
from odradek.streams import Streams

app = Streams(sys.argv[1], servers=os.environ["ODRADEK_BOOTSTRAP"])
app.stream(sys.argv[1], key="STRING", value="STRING", value_format="kafka").to(sys.argv[2], value_format="kafka")
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pipelines", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--wake", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    with OdradekNode() as node, tempfile.TemporaryDirectory() as directory:
        names = _put_asleep(node.bootstrap, arguments.pipelines, Path(directory))
        supervisor = _serve(node.bootstrap, Path(directory))
        try:
            figures = _idle(node.bootstrap, supervisor.pid, arguments.seconds, len(names))
            if arguments.wake:
                figures["wake_s"] = _wake(node.bootstrap, names[0])
        finally:
            supervisor.terminate()
            supervisor.wait(PATIENCE_S)
    figures["load"] = load
    for name, value in figures.items():
        print(f"{name:24} {value:,.3f}")
    if arguments.json is not None:
        conditions = {
            "pipelines": arguments.pipelines,
            "cpus": os.cpu_count(),
            "python": sys.version.split()[0],
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "figures": figures}, indent=1) + "\n")


def _put_asleep(servers: str, count: int, directory: Path) -> list[str]:
    """Documents, and statuses as a supervisor before would have left them."""
    names = [f"in-{number}" for number in range(count)]
    file = directory / "program.py"
    file.write_text(PROGRAM)
    clock = SystemClock()
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(name, 1) for name in [*names, *(f"{name}.out" for name in names)]])
    statuses = StatusWriter(servers, clock)
    with PipelineStore(servers) as store:
        for name in names:
            version = PipelineVersion(
                number=1, program=str(file), args=(name, f"{name}.out"), checkpoint=f"{name}/v1"
            )
            document = PipelineDocument(name=name, revision=1, versions=(version,), sleep_after_s=60.0)
            store.change(name, partial(_replaced, document))
            status = PipelineStatus(
                name=name,
                phase=Phase.SLEEPING,
                revision=1,
                version=1,
                since_ms=clock.wall_ms(),
                supervisor="before",
                inputs={name: {0: 0}},
            )
            statuses.publish(name, status)
    statuses.close()
    return names


def _replaced(document: PipelineDocument, _: PipelineDocument | None) -> PipelineDocument:
    return document


def _serve(servers: str, directory: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", "import sys; from odradek.cli.main import main; sys.exit(main())"]
    words += ["pipelines", "serve", "--bootstrap", servers, "--state", str(directory / "state")]
    words += ["--programs", str(directory)]
    return subprocess.Popen(words, env=serve_environment(), stdout=subprocess.DEVNULL)


def _idle(servers: str, pid: int, seconds: float, count: int) -> dict[str, Any]:
    with Admin(servers) as admin:
        _until(lambda: supervisor_of(admin) is not None, "a supervisor")
    time.sleep(SETTLE_S)
    before, began = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    share = (cpu_seconds(pid) - before) / (time.monotonic() - began)
    resident_mb = memory(pid).rss_bytes / 1e6
    return {
        "idle_share_of_core": share,
        "idle_share_each": share / count,
        "resident_mb": resident_mb,
        "resident_mb_each": resident_mb / count,
    }


def _wake(servers: str, name: str) -> float:
    with Producer(servers) as producer, Consumer(servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(f"{name}.out", 0)])
        began = time.monotonic()
        producer.send_and_wait(name, b"awake")
        _until(lambda: consumer.poll(0.1), "the copy of the record")
        return time.monotonic() - began


def _until(check: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not come within {PATIENCE_S:g} s")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
