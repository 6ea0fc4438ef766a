"""A pipeline's batch fails again and again: one order is not a number. Needs Spark."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stage import Incident, Stage, Step, free_ports, play

from odradek import Admin, NewTopic, Producer

ORDERS: Final = "orders"
NAME: Final = "totals"
PROGRAM: Final = Path(__file__).with_name("totals_program.py")
SERVE: Final = "import sys; from odradek.cli.main import main; sys.exit(main())"


class FailingPipeline(Incident):
    title = "A pipeline's batch fails again and again: a record is not what the program expects."
    alert = "PipelineFails"
    seconds_max = 400.0  # Spark starts three times

    def __init__(self) -> None:
        self._state = tempfile.TemporaryDirectory(prefix="pipelines-")
        self._metrics = f"127.0.0.1:{free_ports(1)[0]}"

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(name, 1, 1) for name in (ORDERS, "receipts", "orders.dlq")])
        with Producer(stage.address) as producer:
            for amount in ("10", "20", '"a dozen"', "40"):
                producer.send(ORDERS, f'{{"amount": {amount}}}').result()
        words = ["pipelines", "serve", "--state", self._state.name, "--programs", str(PROGRAM.parent)]
        words += ["--metrics", self._metrics, "-b", stage.address]
        stage.metrics.append(self._metrics)
        stage.program([sys.executable, "-c", SERVE, *words], Path(self._state.name) / "supervisor.log")
        self._run(stage, "on_bad_order=fail")
        stage.until(lambda: self._failures(stage) >= 2, "it has failed twice")

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step("Which pipeline fails, and how often?", ["pipeline", "list", "-b", stage.address], NAME),
            Step(
                "Why, and at which record?", ["pipeline", "describe", NAME, "-b", stage.address], "offset 2"
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        """Has the mended program go on where the other one stood."""
        words = [
            "pipeline",
            "upgrade",
            NAME,
            str(PROGRAM),
            "--mode",
            "keep",
            "-b",
            stage.address,
            "--",
            "on_bad_order=dead-letter",
        ]
        return [
            Step("Upgrade it to a program that sends what it cannot read to a topic of dead letters.", words)
        ]

    def is_over(self, stage: Stage) -> bool:
        return self._failures(stage) == 0 and stage.total("odradek_pipeline_rows", NAME) >= 4

    def _run(self, stage: Stage, argument: str) -> None:
        stage.odradek("pipeline", "run", str(PROGRAM), "--name", NAME, "-b", stage.address, "--", argument)

    def _failures(self, stage: Stage) -> float:
        return stage.total("odradek_pipeline_failures_in_a_row", NAME)


if __name__ == "__main__":
    play(FailingPipeline())
