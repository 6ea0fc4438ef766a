"""Random programs at Kafka Streams and at ours, with a summary; what differs is shrunk and printed.

    python -m tests.streams.oracle --programs 2000 --seed 0           the seeds from 0 on, through Spark
    python -m tests.streams.oracle --direct --programs 20000          only our processors, without Spark: 100 times as fast
    python -m tests.streams.oracle --programs 500 --only joinTables   only programs that use an operator or have a goal
    python -m tests.streams.oracle --show 4711 --variant 2            one program, and both answers

Ends with 0 without a difference, with 1 otherwise, and with 3 where Kafka's jars are absent.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.interop.languages.prepare import AbsentError
from tests.streams.oracle import direct
from tests.streams.oracle.allowed import allowance
from tests.streams.oracle.comparison import Outputs, compare_written
from tests.streams.oracle.documents import operators, text
from tests.streams.oracle.generator import Document, generate
from tests.streams.oracle.kafka import PROGRAM, KafkaOracle, OracleError
from tests.streams.oracle.ours import OurDriver, missing
from tests.streams.oracle.shrinking import shrink

BATCH = 20
Answers = Callable[[list[Document]], list[Outputs | str]]


@dataclass
class Tally:
    """The outcome of the programs so far."""

    topologies: int = 0
    compared: int = 0
    outputs: int = 0
    not_covered: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    different: list[Document] = field(default_factory=list)


class Trial:
    """Both sides. `ours`: what we write for each document, or the error."""

    def __init__(self, kafka: KafkaOracle, ours: Answers) -> None:
        self._kafka = kafka
        self._ours = ours

    def judge(self, documents: list[Document], tally: Tally) -> list[list[str]]:
        """For each document what is wrong with it, in words."""
        answers = self._ours(documents)
        return [
            self._faults(document, mine, tally) for document, mine in zip(documents, answers, strict=True)
        ]

    def _faults(self, document: Document, mine: Outputs | str, tally: Tally) -> list[str]:
        theirs = self._kafka.answer(document)
        tally.compared += 1
        tally.outputs += sum(map(len, theirs.values()))
        tally.operators.update(operators(document))
        if isinstance(mine, str):
            return [f"ours fails: {mine}"]
        faults = []
        for difference in compare_written(document, mine, theirs):
            allowed = allowance(document, difference)
            if allowed is None:
                faults.append(str(difference))
            else:
                tally.allowed[allowed.name] += 1
        return faults

    def smallest(self, document: Document) -> Document:
        return shrink(document, self._fail)

    def _fail(self, candidates: list[Document]) -> list[bool]:
        """Which of these differ? Not those that Kafka refuses: what makes a program right may have been left out."""
        answers, failed = self._ours(candidates), []
        for document, mine in zip(candidates, answers, strict=True):
            try:
                failed.append(bool(self._faults(document, mine, Tally())))
            except OracleError:
                failed.append(False)
        return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.streams.oracle")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--direct", action="store_true", help="drive our processors without Spark")
    parser.add_argument("--only", help="programs that use this operator, or have this goal")
    parser.add_argument("--show", type=int, metavar="SEED")
    parser.add_argument("--variant", type=int, default=0)
    parser.add_argument("--inputs", type=int, default=5, help="how many inputs each topology gets")
    parser.add_argument("--differences", type=int, default=5, help="stop after so many")
    parser.add_argument("--shrink", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    try:
        PROGRAM.prepare()
        with KafkaOracle() as kafka, ExitStack() as stack:
            ours = direct.answers if options.direct else stack.enter_context(OurDriver()).answers
            trial = Trial(kafka, ours)
            if options.show is not None:
                return _show(generate(options.show, options.variant), kafka, ours)
            return _run(trial, options)
    except AbsentError as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 3


def _run(trial: Trial, options: argparse.Namespace) -> int:
    tally = Tally()
    began = time.monotonic()
    documents = itertools.islice(_wanted(options, tally), options.programs)
    while batch := list(itertools.islice(documents, BATCH)):
        for document, faults in zip(batch, trial.judge(batch, tally), strict=True):
            if faults:
                tally.different.append(document)
                _say(f"\n{text(document)}\n  " + "\n  ".join(faults))
                if options.shrink:
                    _say_smallest(trial, document)
        if tally.compared % 1000 < BATCH:
            _say(
                f"{tally.compared} programs, {len(tally.different)} differ, {time.monotonic() - began:.0f} s"
            )
        if len(tally.different) >= options.differences:
            break
    _summary(tally)
    return 1 if tally.different else 0


def _wanted(options: argparse.Namespace, tally: Tally) -> Iterator[Document]:
    """Programs that can be compared, counting those that cannot."""
    for seed in itertools.count(options.seed):
        document = generate(seed)
        if options.only is not None and options.only not in {*operators(document), document["goal"]}:
            continue
        lacking = missing(document)
        if lacking is not None:
            tally.not_covered[lacking] += 1
            continue
        tally.topologies += 1
        for variant in range(options.inputs):
            yield generate(seed, variant)


def _say_smallest(trial: Trial, document: Document) -> None:
    small = trial.smallest(document)
    faults = trial.judge([small], Tally())[0]
    _say(f"smallest:\n{text(small)}\n  " + "\n  ".join(faults) + f"\n{json.dumps(small)}")


def _show(document: Document, kafka: KafkaOracle, ours: Answers) -> int:
    _say(text(document))
    theirs, mine = kafka.answer(document), ours([document])[0]
    for name, outputs in (("theirs", theirs), ("ours", mine)):
        _say(f"{name}:")
        if isinstance(outputs, str):
            _say(f"  {outputs}")
            continue
        for topic, records in outputs.items():
            for key, value, at in records:
                _say(f"  {topic} @{at}: {key} -> {value}")
    return 0 if mine == theirs else 1


def _summary(tally: Tally) -> None:
    _say(
        f"\n{tally.compared} programs compared, {tally.outputs} outputs, {len(tally.different)} programs differ"
    )
    for title, counts in (
        ("operators", tally.operators),
        ("differences on purpose", tally.allowed),
        ("left out, because ours has no", tally.not_covered),
    ):
        if counts:
            _say(f"{title}: " + ", ".join(f"{name} {count}" for name, count in sorted(counts.items())))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
