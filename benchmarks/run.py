"""`python -m benchmarks.run`: Odradek beside Apache Kafka, in one run, round by round.

All brokers of a measure are up together and take turns (A B C, B C A, C A B, ...), with the same client and the same
flags; each round gives one ratio, and the ratios' spread says how far to trust them. Without Maven or Java the peer is
absent: this is said, and only Odradek's own figures are taken.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import confluent_kafka as ck

from benchmarks import (
    compaction,
    coordination,
    exactly_once,
    load,
    measures,
    movement,
    published,
    report,
)
from benchmarks.broker import catch_up, hot_path, limits, recovery, request_cost, small_requests
from benchmarks.cluster import plan as cluster_plan
from benchmarks.cluster.nodes import cluster_contenders
from benchmarks.cluster.suite import PARTS, ClusterSuite, in_turn
from benchmarks.contenders import DURABLE, PAGE_CACHE, PEER, Contender, contenders
from benchmarks.measures import FULL, QUICK, SMOKE, Plan, Running
from benchmarks.peer import PeerAbsentError, PeerJars, fetch_peer
from benchmarks.samples import Sample, findings
from odradek.records import engine

_PLANS = {"smoke": SMOKE, "quick": QUICK, "full": FULL, "hot": hot_path.HOT_PATH}
CLUSTER: Final = "cluster"

# Measures that share running brokers, case by case, and those that start their own.
TOGETHER: dict[str, Callable[[Running, Plan, int], Iterable[Callable[[], Iterator[Sample]]]]] = {
    "throughput": lambda item, plan, number: (
        partial(measures.throughput, item, plan, number, size) for size in plan.counts
    ),
    "latency": lambda item, plan, number: (
        partial(measures.latency, item, plan, number, acks) for acks in plan.acks
    ),
    "groups": lambda item, plan, number: (
        *(
            partial(coordination.rebalances, item, plan, number, size)
            for size in coordination.group_sizes(plan)
        ),
        partial(coordination.group_reading, item, plan, number),
    ),
    "commits": lambda item, plan, number: (partial(coordination.commits, item, plan, number),),
    "small": lambda item, plan, number: (
        partial(small_requests.small_requests, item, plan, number, acks) for acks in plan.acks
    ),
    "transactions": lambda item, plan, number: (partial(coordination.transactions, item, plan, number),),
    "sink": lambda item, plan, number: (
        partial(exactly_once.sink_batches, item, plan, number),
        partial(exactly_once.spark_batches, item, plan, number),
    ),
}
ALONE: dict[str, Callable[[Contender, Plan, int], Iterator[Sample]]] = {
    "memory": measures.memory_use,
    "start": measures.start,
    "compaction": compaction.compaction,
    "catch-up": catch_up.catch_up,
    "requests": request_cost.request_cost,
    "recovery": recovery.recovery,
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or every start compiles everything again
    kind = "full" if options.full else "smoke" if options.smoke else "hot" if options.hot else "quick"
    plan = _PLANS[kind]
    jars = None if options.no_peer else _peer(options.peer_version)
    who = [
        contender
        for contender in contenders(jars)
        if not options.contender or contender.key in options.contender
    ]
    if not who:
        print("no one is left to measure", file=sys.stderr)
        return 3
    wanted = options.only or (hot_path.MEASURES if options.hot else [*TOGETHER, *ALONE, CLUSTER])
    began = time.time()
    samples: list[Sample] = []
    with ExitStack() as stack:
        progress = _Progress(began)
        shared = [name for name in TOGETHER if name in wanted]
        if shared:
            samples += _measure_together(stack, who, plan, shared, progress)
    for name in ALONE:
        if name in wanted:
            samples += _measure_alone(who, plan, name, progress)
    cluster_facts: dict[str, Any] = {}
    if CLUSTER in wanted:
        suite = _cluster_suite(options, kind, who, jars, progress)
        samples += suite.run(options.cluster_part or PARTS)
        cluster_facts = {CLUSTER: suite.facts()}
    result = findings(samples, PEER)
    facts = _facts(plan, kind, who, wanted, time.time() - began) | cluster_facts
    options.out.mkdir(parents=True, exist_ok=True)
    report.write_json(options.out / "results.json", facts, samples, result)
    table = report.markdown(result, who, PEER)
    (options.out / "results.md").write_text(table, encoding="utf-8")
    title = f"Odradek beside Apache Kafka, {facts['plan']} run on {facts['machine']['cores']} cores"
    report.draw(options.out / "results.png", result, title)
    page = load.ROOT / "docs" / "benchmarks.md"
    old = published.load(page.with_suffix(".json"))
    moved = movement.as_text(movement.compare(old, facts, samples, PEER))
    (options.out / "moved.md").write_text(moved, encoding="utf-8")
    if options.publish:
        published.write(page, published.replaced(old, facts, samples), contenders(jars), PEER)
    print(table)
    print(moved)
    print(f"written to {options.out}: results.md, results.json, results.png, moved.md")
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="a few minutes (the default)")
    length.add_argument(
        "--smoke", action="store_true", help="seconds: whether it runs; the figures mean nothing"
    )
    length.add_argument(
        "--full", action="store_true", help="more rounds, more records: well over half an hour"
    )
    length.add_argument(
        "--hot",
        action="store_true",
        help="less than five minutes: the rows that a change of a hot path moves",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*TOGETHER, *ALONE, CLUSTER],
        help="measure this alone; may be repeated",
    )
    parser.add_argument(
        "--cluster-part", action="append", choices=PARTS, help="of the cluster, this alone; may be repeated"
    )
    parser.add_argument(
        "--cluster-partitions", type=int, metavar="N", help="partitions of the cluster that is restarted"
    )
    parser.add_argument(
        "--contender",
        action="append",
        choices=[PEER, DURABLE, PAGE_CACHE],
        help="let this one take part; may be repeated",
    )
    parser.add_argument("--no-peer", action="store_true", help="leave Apache Kafka out")
    parser.add_argument("--peer-version", help="a 4.x version of Apache Kafka; by default the newest at hand")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("benchmarks/results"),
        help="a directory (default: benchmarks/results)",
    )
    parser.add_argument(
        "--publish",
        action="store_true",
        help="also write the results into docs/benchmarks.md and its history, where what was not measured stays",
    )
    return parser.parse_args(arguments)


def _peer(version: str | None) -> PeerJars | None:
    try:
        return fetch_peer(version=version)
    except PeerAbsentError as reason:
        print(f"Apache Kafka is absent: {reason}. Measuring Odradek alone.", file=sys.stderr)
        return None


def _cluster_suite(
    options: argparse.Namespace,
    kind: str,
    who: Sequence[Contender],
    jars: PeerJars | None,
    progress: _Progress,
) -> ClusterSuite:
    sizes = cluster_plan.PLANS.get(kind, cluster_plan.QUICK)
    if options.cluster_partitions is not None:
        sizes = replace(sizes, partitions=options.cluster_partitions)
    by_key = cluster_contenders(jars)
    titles = {contender.key: contender.title for contender in who}
    return ClusterSuite([by_key[contender.key] for contender in who], titles, sizes, progress)


def _measure_together(
    stack: ExitStack, who: Sequence[Contender], plan: Plan, names: Sequence[str], progress: _Progress
) -> list[Sample]:
    running = []
    for contender in who:
        directory = stack.enter_context(measures.work_directory())
        node = contender.make(directory)
        stack.callback(node.stop)
        node.start()
        item = Running(contender=contender, node=node)
        progress.say(f"{contender.title}: warm-up")
        measures.warm_up(item, plan)
        running.append(item)
    samples = []
    for name in names:
        for number in range(plan.rounds):
            cases = [TOGETHER[name](entry, plan, number) for entry in in_turn(running, number)]
            for turn in zip(*cases, strict=True):  # one case by everyone, then the next
                for measure in turn:
                    for sample in measure():
                        samples.append(sample)
                        progress.show(sample, plan.rounds)
    return samples


def _measure_alone(who: Sequence[Contender], plan: Plan, name: str, progress: _Progress) -> list[Sample]:
    samples = []
    for number in range(plan.start_rounds):
        for contender in in_turn(who, number):
            for sample in ALONE[name](contender, plan, number):
                samples.append(sample)
                progress.show(sample, plan.start_rounds)
    return samples


def _facts(
    plan: Plan, kind: str, who: Sequence[Contender], wanted: Sequence[str], seconds: float
) -> dict[str, Any]:
    return {
        "plan": kind,
        "measures": list(wanted),
        "rounds": plan.rounds,
        "records": {str(size): count for size, count in plan.counts.items()},
        "partitions": measures.PARTITIONS,
        "seconds": round(seconds),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": report.machine(),
        "limits": _limits(),
        "engine": "compiled" if engine.active is not engine.PLAIN else "pure Python",
        "contenders": {
            contender.key: {"title": contender.title, "promise": contender.promise} for contender in who
        },
        "producer": {"client": f"confluent-kafka {ck.__version__}, produce_batch", **load.PRODUCER_SETTINGS},
        "consumer": {"client": load.consumer_name(), **load.CONSUMER_SETTINGS},
    }


def _limits() -> limits.Limits:
    with measures.work_directory() as directory:
        return limits.limits(directory)


class _Progress:
    def __init__(self, began: float) -> None:
        self._began = began

    def say(self, text: str) -> None:
        print(f"{time.time() - self._began:6.0f} s  {text}", file=sys.stderr, flush=True)

    def show(self, sample: Sample, rounds: int) -> None:
        figure = f"{sample.value:,.1f} {sample.quantity}"
        self.say(
            f"round {sample.round_number + 1}/{rounds}  {sample.contender:<18}  {sample.measure}, {sample.condition}: {figure}"
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the brokers are ended on the way out
    sys.exit(main())
