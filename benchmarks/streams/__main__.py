"""`python -m benchmarks.streams [--quick]`: odradek.streams beside Kafka Streams.

One Odradek broker, one process for each side; both run the same program at the same time, each on topics of its own with the
same records. A round's records become visible at once, when a transaction is committed. Measured is the time from there until
the output has, committed, the table that must come out; sides take turns. The first rounds warm up. CPU is that of all the
processes of a side. Without Maven or Java, Kafka Streams is absent: this is said, and the other side's figures are taken.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from benchmarks import report
from benchmarks.odradek_node import OdradekNode
from benchmarks.peer import PeerAbsentError
from benchmarks.samples import Finding, Sample, findings
from benchmarks.streams.contestants import (
    KAFKA_STREAMS,
    Side,
    kafka_streams,
    kafka_streams_version,
    odradek_streams,
)
from benchmarks.streams.inputs import CASES, LATENCY, Case, RoundInput
from benchmarks.streams.latency import latencies
from benchmarks.streams.watching import InputProducer, OutputWatch
from benchmarks.watch import cpu_seconds
from odradek.client import Admin, NewTopic

PARTITIONS: Final = 2
COMMIT_MS: Final = 500
GUARANTEES: Final = ("exactly_once_v2", "at_least_once")
_RATE: Final = "records/s"
_CPU: Final = "CPU s per million"
_BROKER: Final = "broker CPU s per million"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured."""

    rounds: int
    warm_up_rounds: int
    records: int
    latency_records: int
    guarantees: tuple[str, ...]


FULL: Final = Plan(rounds=5, warm_up_rounds=3, records=200_000, latency_records=300, guarantees=GUARANTEES)
QUICK: Final = Plan(
    rounds=3, warm_up_rounds=2, records=100_000, latency_records=100, guarantees=GUARANTEES[:1]
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="under six minutes: exactly once only, fewer records"
    )
    parser.add_argument("--rounds", type=int, help="after those that warm up")
    parser.add_argument("--records", type=int, help="of a round, about")
    parser.add_argument(
        "--only", action="append", choices=[*CASES, LATENCY], help="may be given several times"
    )
    parser.add_argument("--guarantee", action="append", choices=GUARANTEES)
    parser.add_argument("--alone", action="store_true", help="without Kafka Streams")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="a directory")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    plan = Plan(
        rounds=options.rounds or plan.rounds,
        warm_up_rounds=plan.warm_up_rounds,
        records=options.records or plan.records,
        latency_records=plan.latency_records,
        guarantees=tuple(options.guarantee or plan.guarantees),
    )
    before = os.getloadavg()[0]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
        node = stack.enter_context(OdradekNode(settings={"log.cleaner.enable": "false"}))
        sides, absent = [], "it was left out"
        if not options.alone:
            try:
                sides.append(stack.enter_context(kafka_streams(node.bootstrap, directory)))
            except PeerAbsentError as reason:
                absent = str(reason)
        if not sides:
            print(f"Kafka Streams is absent: {absent}", file=sys.stderr)
        sides.append(stack.enter_context(odradek_streams(node.bootstrap, directory)))
        bench = Bench(node, sides, plan)
        samples = list(bench.measured(options.only or [*CASES, LATENCY]))
    facts = {
        "kafka streams": kafka_streams_version() if len(sides) > 1 else f"absent: {absent}",
        "records a round": plan.records,
        "rounds": plan.rounds,
        "commit interval ms": COMMIT_MS,
        "load before and after": [before, os.getloadavg()[0]],
        "machine": report.machine(),
    }
    results = findings(samples, KAFKA_STREAMS)
    options.out.mkdir(parents=True, exist_ok=True)
    report.write_json(options.out / "streams.json", facts, samples, results)
    table = _table(facts, results)
    (options.out / "streams.md").write_text(table, encoding="utf-8")
    print(table)
    return 0


class Bench:
    """The measurements, one after another."""

    def __init__(self, node: OdradekNode, sides: list[Side], plan: Plan) -> None:
        self._node = node
        self._sides = sides
        self._plan = plan

    def measured(self, wanted: Iterable[str]) -> Iterable[Sample]:
        chosen = list(wanted)
        for guarantee in self._plan.guarantees:
            for name in chosen:
                if name in CASES:
                    yield from self._throughput(name, CASES[name], guarantee)
            if LATENCY in chosen:
                yield from self._latency(guarantee)

    def _throughput(self, name: str, case: Case, guarantee: str) -> Iterable[Sample]:
        with ExitStack() as stack:
            running = [
                stack.enter_context(
                    RunningProgram(
                        self._node, side, name, case.inputs, guarantee, program=case.program or name
                    )
                )
                for side in self._sides
            ]
            rounds = case.rounds(self._plan.records * case.scale)
            total = self._plan.warm_up_rounds + self._plan.rounds
            for number, work in zip(range(total), rounds, strict=False):
                turn = number % len(running)
                for program in [*running[turn:], *running[:turn]]:
                    figures = program.run(work)
                    _tell(f"{guarantee} {name} {number} {program.side.name}: {figures}")
                    if number < self._plan.warm_up_rounds:
                        continue
                    for quantity, value in figures.items():
                        yield Sample(
                            measure=case.title,
                            condition=guarantee,
                            quantity=quantity,
                            better="higher" if quantity == _RATE else "lower",
                            contender=program.side.name,
                            round_number=number,
                            value=value,
                        )

    def _latency(self, guarantee: str) -> Iterable[Sample]:
        with ExitStack() as stack:
            running = [
                stack.enter_context(
                    RunningProgram(
                        self._node,
                        side,
                        "latency",
                        1,
                        guarantee,
                        program=LATENCY,
                        commit_ms=self._commit_ms(side),
                    )
                )
                for side in self._sides
            ]
            for number in range(self._plan.rounds + 1):
                turn = number % len(running)
                for program in [*running[turn:], *running[:turn]]:
                    servers, topic = self._node.bootstrap, program.inputs[0]
                    figures = latencies(servers, topic, program.watch, self._plan.latency_records)
                    _tell(f"{guarantee} latency {number} {program.side.name}: {figures}")
                    if number == 0:
                        continue
                    for quantity, value in figures.items():
                        yield Sample(
                            measure="latency of a record: filter and map",
                            condition=guarantee,
                            quantity=quantity,
                            better="lower",
                            contender=program.side.name,
                            round_number=number,
                            value=value,
                        )

    def _commit_ms(self, side: Side) -> int:
        """Kafka's own default for exactly once; ours as soon as there is something to do."""
        return 100 if side.name == KAFKA_STREAMS else 0


class RunningProgram:
    """A program of one side, with topics of its own."""

    def __init__(
        self,
        node: OdradekNode,
        side: Side,
        name: str,
        inputs: int,
        guarantee: str,
        *,
        program: str,
        commit_ms: int = COMMIT_MS,
    ) -> None:
        self.side = side
        self._node = node
        self._stack = ExitStack()
        mark = f"{name}-{guarantee.replace('_', '-')}-{'k' if side.name == KAFKA_STREAMS else 'o'}"
        self.inputs = [f"{mark}-in{number}" for number in range(inputs)]
        output = f"{mark}-out"
        with Admin(node.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, PARTITIONS) for topic in self.inputs])
            admin.create_topics([NewTopic(output, PARTITIONS, configs={"cleanup.policy": "compact"})])
        self._producer = InputProducer(node.bootstrap, mark)
        self._stack.callback(self._producer.close)
        self.watch = self._stack.enter_context(OutputWatch(node.bootstrap, output, PARTITIONS))
        side.start(program, guarantee, f"app-{mark}", commit_ms, self.inputs, output)
        self._stack.callback(side.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, work: RoundInput) -> dict[str, float]:
        """The figures of a round."""
        counted = self.watch.record_count
        self._producer.write(work, self.inputs)
        cpu, broker, began = self.side.cpu_seconds(), cpu_seconds(self._node.pid), time.monotonic()
        self._producer.commit()
        seconds = self.watch.until(work.expected, counted, self.side) - began
        time.sleep(work.settle_s)
        millions = work.record_count / 1e6
        spent = {kind: total - cpu.get(kind, 0.0) for kind, total in self.side.cpu_seconds().items()}
        return {
            _RATE: work.record_count / seconds,
            _CPU: sum(spent.values()) / millions,
            **{f"{kind} {_CPU}": kind_s / millions for kind, kind_s in sorted(spent.items())},
            _BROKER: (cpu_seconds(self._node.pid) - broker) / millions,
        }


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _table(facts: dict[str, Any], results: list[Finding]) -> str:
    load = facts["load before and after"]
    lines = [
        f"Kafka Streams {facts['kafka streams']}; {facts['records a round']:,} records a round, {facts['rounds']} rounds;"
        f" load {load[0]:.1f} before, {load[1]:.1f} after.",
        "",
        "| | | | Kafka Streams | odradek.streams | ratio (lowest to highest round) |",
        "|---|---|---|---:|---:|---:|",
    ]
    theirs = {_kind(finding): finding for finding in results if finding.contender == KAFKA_STREAMS}
    for finding in results:
        if finding.contender == KAFKA_STREAMS:
            continue
        peer, ratio = theirs.get(_kind(finding)), finding.ratio
        shown = "" if ratio is None else f"{ratio.median:.2f} ({ratio.lowest:.2f} to {ratio.highest:.2f})"
        middle = "absent" if peer is None else _number(peer.values.median)
        lines.append(
            f"| {finding.measure} | {finding.condition} | {finding.quantity} | {middle} |"
            f" {_number(finding.values.median)} | {shown} |"
        )
    return "\n".join([*lines, ""])


def _kind(finding: Finding) -> tuple[str, str, str]:
    return finding.measure, finding.condition, finding.quantity


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
