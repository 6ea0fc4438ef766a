"""Answers of Kafka Streams kept as data, one document and its outputs a line: `make test` compares with them, without Java.

python -m tests.streams.oracle.recording [--programs 88]      chooses programs and records them once more
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from tests.interop.languages.prepare import AbsentError
from tests.streams.oracle.comparison import Outputs
from tests.streams.oracle.documents import operators
from tests.streams.oracle.generator import GOALS, MEETING_GOALS, Document, generate
from tests.streams.oracle.kafka import KafkaOracle

ANSWERS = Path(__file__).parent / "answers" / "kafka-4.4.0.jsonl"
_SEEDS_MAX = 4000
_EXAMPLES_OF_EACH = 2


def recorded() -> list[tuple[Document, Outputs]]:
    lines = ANSWERS.read_text(encoding="utf-8").splitlines()
    return [(pair["document"], pair["outputs"]) for pair in map(json.loads, lines)]


def choose(kafka: KafkaOracle, count: int) -> list[tuple[Document, Outputs]]:
    """`count` programs from the first seeds: one for each goal, one for each operator, then second examples."""
    chosen: dict[int, tuple[Document, Outputs]] = {}
    covered: Counter[str] = Counter()

    def take(document: Document) -> None:
        outputs = kafka.answer(document)
        if len(chosen) < count and all(len(records) > 2 for records in outputs.values()):
            covered.update({*operators(document), _goal(document)})
            chosen[document["seed"]] = (document, outputs)

    documents = [generate(seed) for seed in range(_SEEDS_MAX)]
    for document in documents:
        if not covered[_goal(document)]:
            take(document)
    for wanted in range(1, _EXAMPLES_OF_EACH + 1):
        for document in documents:
            if document["seed"] not in chosen and any(
                covered[operator] < wanted for operator in operators(document)
            ):
                take(document)
    return list(chosen.values())


def _goal(document: Document) -> str:
    """Beside the names of operators, some of which are goals too. Where two ways meet, what tables say belongs to it."""
    emit = f" {document.get('emit', 'every')}" if document["goal"] in MEETING_GOALS else ""
    return f"goal {document['goal']}{emit}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.streams.oracle.recording")
    parser.add_argument("--programs", type=int, default=88)
    options = parser.parse_args()
    try:
        with KafkaOracle() as kafka:
            chosen = choose(kafka, options.programs)
            target = ANSWERS.with_name(f"kafka-{kafka.version}.jsonl")
    except AbsentError as reason:
        sys.stderr.write(f"absent: {reason}\n")
        return 3
    target.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"document": document, "outputs": outputs}) for document, outputs in chosen]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    goals = {document["goal"] for document, _ in chosen}
    sys.stdout.write(f"{len(chosen)} programs, {len(goals)} of {len(GOALS)} goals: {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
