"""What a scrape costs: the broker's own metrics listener beside kafka_exporter, which asks the broker over the wire.

    python -m benchmarks.watching.exporter [--topics 1000] [--groups 100] [--rounds 10] [--exporter PATH]

One broker with so many topics of four partitions, and groups that have committed in ten of them each. Both are asked for
`/metrics` in turn, kafka_exporter with its defaults; the order changes from round to round. It prints the time of a scrape,
the CPU time of the broker, that of broker and exporter together, and the number of series, each with its spread, and the ratio
of ours to theirs round by round. Every scrape of both must have the lags that were committed: else it ends with an error.

kafka_exporter is built with Go into the cache of the other peers. `--exporter` takes a binary that was had otherwise. Without
either, this says why it is absent, and measures ours alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.odradek_node import OdradekNode
from benchmarks.peer import PeerAbsentError, free_port
from benchmarks.peer.fetch import cache_directory
from benchmarks.samples import Sample, findings
from benchmarks.watching.paired_rounds import cpu_s
from odradek import Admin, NewTopic, Producer
from odradek.model.ids import TopicPartition
from odradek.telemetry.scraped_metrics import ScrapedSamples

MODULE: Final = "github.com/danielqsj/kafka_exporter"
VERSION: Final = "v1.9.0"
PEER: Final = "kafka_exporter"
OURS: Final = "metrics.listeners"
PARTITIONS: Final = 4
TOPICS_OF_A_GROUP: Final = 10
LAG: Final = "kafka_consumergroup_lag"
_RECORDS_MAX: Final = 7
_TOPICS_AT_ONCE: Final = 100
_BUILD_SECONDS_MAX: Final = 900
_SECONDS_MAX: Final = 120.0
_PAUSE_S: Final = 0.1

Lags = Mapping[tuple[str, str, str], float]
"""Lags by group, topic and partition."""


class LagsDisagreeError(Exception):
    """A scrape has other lags than were committed; the message names whose scrape it is, and the first difference."""


class Scrape(NamedTuple):
    """One page of metrics, and what it cost."""

    seconds: float
    broker_cpu_s: float
    exporter_cpu_s: float
    """The CPU time of the exporter's own process; 0 where the broker is its own."""
    page: bytes


class Target(NamedTuple):
    """A listener that has metrics of the broker."""

    name: str
    address: str
    exporter_pid: int | None
    """The process beside the broker; None where the broker is its own."""

    def scrape(self, broker_pid: int) -> Scrape:
        exporter_before_s = self._exporter_cpu_s()
        broker_before_s, began = cpu_s(broker_pid), time.perf_counter()
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=_SECONDS_MAX) as body:
            page: bytes = body.read()
        seconds = time.perf_counter() - began
        return Scrape(
            seconds, cpu_s(broker_pid) - broker_before_s, self._exporter_cpu_s() - exporter_before_s, page
        )

    def _exporter_cpu_s(self) -> float:
        return 0.0 if self.exporter_pid is None else cpu_s(self.exporter_pid)


def built_exporter() -> Path:
    """Returns the program, which Go builds at the first time.

    :raises PeerAbsentError: without Go, or if the module cannot be had
    """
    directory = cache_directory() / f"kafka-exporter-{VERSION.removeprefix('v')}"
    program = directory / PEER
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise PeerAbsentError("there is no go on this machine")
    directory.mkdir(parents=True, exist_ok=True)
    process = subprocess.run(
        ["go", "install", f"{MODULE}@{VERSION}"],
        env={**os.environ, "GOBIN": str(directory)},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS_MAX,
        check=False,
    )
    if process.returncode != 0 or not program.exists():
        lines = process.stderr.strip().splitlines()
        reason = lines[-1].strip() if lines else f"go ended with {process.returncode}"
        raise PeerAbsentError(f"`go install {MODULE}@{VERSION}` failed: {reason}")
    return program


@contextmanager
def exporter_of(program: Path, bootstrap: str) -> Iterator[Target]:
    """Yields kafka_exporter with its defaults, once it listens."""
    address = f"127.0.0.1:{free_port()}"
    command = [str(program), f"--kafka.server={bootstrap}", f"--web.listen-address={address}"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_it_listens(process, address)
        except (OSError, TimeoutError) as error:
            process.kill()
            process.wait()
            log.seek(0)
            written = log.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"{program} does not listen: {error}\n{written}") from error
        try:
            yield Target(PEER, address, process.pid)
        finally:
            process.terminate()
            process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], address: str) -> None:
    host, port = address.rsplit(":", 1)
    deadline_s = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise OSError(f"it ended with code {process.returncode}")
        try:
            socket.create_connection((host, int(port)), timeout=_SECONDS_MAX).close()
        except ConnectionRefusedError:
            time.sleep(_PAUSE_S)
        else:
            return
    raise TimeoutError(f"no connection within {_SECONDS_MAX:g} s")


def fill(bootstrap: str, topics: int, groups: int) -> Lags:
    """Makes the topics, their records and the groups; returns the lags that the groups have then."""
    names = [f"watched-{number}" for number in range(topics)]
    records = {
        TopicPartition(name, partition): (number + partition) % _RECORDS_MAX
        for number, name in enumerate(names)
        for partition in range(PARTITIONS)
    }
    lags: dict[tuple[str, str, str], float] = {}
    with Admin(bootstrap) as admin:
        for first in range(0, topics, _TOPICS_AT_ONCE):
            admin.create_topics(
                [NewTopic(name, PARTITIONS, 1) for name in names[first : first + _TOPICS_AT_ONCE]]
            )
        with Producer(bootstrap, linger_ms=20) as producer:
            for tp, count in records.items():
                for _ in range(count):
                    producer.send(tp.topic, b"x", partition=tp.partition)
        for number in range(groups):
            first = number * TOPICS_OF_A_GROUP
            subscribed = {names[(first + offset) % topics] for offset in range(TOPICS_OF_A_GROUP)}
            committed = {tp: count // 2 for tp, count in records.items() if tp.topic in subscribed}
            admin.alter_group_offsets(f"group-{number}", committed)
            for tp, offset in committed.items():
                lags[f"group-{number}", tp.topic, str(tp.partition)] = records[tp] - offset
    return lags


def lags_of(page: bytes) -> Lags:
    """Returns the lags of a page of metrics."""
    samples = ScrapedSamples([LAG])
    samples.feed(page)
    samples.end()
    return {
        (labels["consumergroup"], labels["topic"], labels["partition"]): value
        for labels, value in ((dict(pairs), value) for pairs, value in samples.by_name.get(LAG, {}).items())
    }


def series_count(page: bytes) -> int:
    return sum(1 for line in page.split(b"\n") if line and not line.startswith(b"#"))


def check_lags(name: str, actual: Lags, expected: Lags) -> None:
    """LagsDisagreeError unless both are the same."""
    for key in sorted(actual.keys() | expected.keys()):
        if actual.get(key) != expected.get(key):
            group, topic, partition = key
            raise LagsDisagreeError(
                f"{name}: the lag of group {group} in partition {partition} of {topic} is "
                f"{actual.get(key, 'missing')}, and was to be {expected.get(key, 'missing')}"
            )


def scraped(targets: Iterable[Target], broker_pid: int, rounds: int, expected: Lags) -> list[Sample]:
    """Scrapes all targets in each round, in an order that turns around. The first scrape of a target is not counted."""
    samples: list[Sample] = []
    order = list(targets)
    for target in order:
        check_lags(target.name, lags_of(target.scrape(broker_pid).page), expected)
    for round_number in range(rounds):
        for target in order:
            scrape = target.scrape(broker_pid)
            check_lags(target.name, lags_of(scrape.page), expected)
            samples += _samples_of(target.name, round_number, scrape)
        order.reverse()
    return samples


def _samples_of(contender: str, round_number: int, scrape: Scrape) -> Iterator[Sample]:
    for quantity, value in (
        ("ms", scrape.seconds * 1e3),
        ("ms of the broker's CPU", scrape.broker_cpu_s * 1e3),
        ("ms of CPU in all", (scrape.broker_cpu_s + scrape.exporter_cpu_s) * 1e3),
        ("series", float(series_count(scrape.page))),
    ):
        yield Sample(
            measure="scrape",
            condition="",
            quantity=quantity,
            better="lower",
            contender=contender,
            round_number=round_number,
            value=value,
        )


def report(samples: Iterable[Sample]) -> str:
    """Returns a line for each figure of each side: its median and both ends, and the ratio of ours to theirs."""
    lines = []
    for finding in findings(samples, PEER):
        values, ratio = finding.values, finding.ratio
        line = (
            f"  {finding.contender:17} {finding.quantity:23} {values.median:11,.1f} "
            f"({values.lowest:,.1f} to {values.highest:,.1f})"
        )
        if ratio is not None:
            line += f"; {ratio.median:.3f} of {PEER}'s ({ratio.lowest:.3f} to {ratio.highest:.3f})"
        lines.append(line)
    return "\n".join(lines)


def run(topics: int, groups: int, rounds: int, exporter: Path | None) -> str:
    """Returns the report. `exporter`: the program of kafka_exporter; None measures ours alone."""
    listener = f"127.0.0.1:{free_port()}"
    with OdradekNode(settings={"metrics.listeners": listener}) as node:
        expected = fill(node.bootstrap, topics, groups)
        ours = Target(OURS, listener, None)
        if exporter is None:
            samples = scraped([ours], node.pid, rounds, expected)
        else:
            with exporter_of(exporter, node.bootstrap) as theirs:
                samples = scraped([theirs, ours], node.pid, rounds, expected)
    return (
        f"a broker with {topics:,} topics of {PARTITIONS} partitions, {groups:,} groups with {len(expected):,} lags, which "
        f"every scrape had; {rounds} rounds:\n{report(samples)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--exporter", type=Path, help="a binary of kafka_exporter, instead of building it")
    options = parser.parse_args()
    exporter: Path | None = options.exporter
    if exporter is None:
        try:
            exporter = built_exporter()
        except PeerAbsentError as reason:
            sys.stdout.write(f"{PEER}: absent: {reason}\n")
    sys.stdout.write(run(options.topics, options.groups, options.rounds, exporter) + "\n")


if __name__ == "__main__":
    main()
