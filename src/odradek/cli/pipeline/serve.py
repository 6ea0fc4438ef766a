"""`odradek pipelines serve`: the supervisor."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.access import check_reachable, client_arguments
from odradek.cli.metrics import metrics_options, metrics_terms
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option
from odradek.cli.output import say
from odradek.cli.pipeline.access import program_environment
from odradek.config.data_directory import default_data_directory
from odradek.model.lazy import lazy
from odradek.pipelines.admission import Approvals, ProgramAdmission
from odradek.pipelines.lifecycle import RestartPolicy
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.runtime.real_process import usable_cpu_count
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.pipelines import runner_process, serving
    from odradek.pipelines.document import PipelineDocument
    from odradek.pipelines.runner_process import RunnerProcess
else:
    runner_process = lazy("odradek.pipelines.runner_process")
    serving = lazy("odradek.pipelines.serving")


@click.group()
def pipelines() -> None:
    """Supervise the pipelines of a cluster."""


@pipelines.command()
@click.option(
    "--state",
    metavar="DIR",
    help="Where checkpoints are; by default `pipelines` in Odradek's data directory.",
    type=click.Path(file_okay=False),
)
@click.option(
    "--processes-max",
    type=Whole(min=1),
    help="The most pipelines that run at the same time; others wait until one stops or sleeps. By default all run.",
)
@click.option(
    "--programs",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    help="Run programs from this directory, and from below it; may be given several times. Without it, only programs run"
    " that you ran yourself with `odradek pipeline run` on this machine.",
)
@click.option(
    "--allow-conf",
    metavar="KEY",
    multiple=True,
    help="Let pipelines have this setting of Spark, in addition to the harmless ones; `*` at its end means any rest.",
)
@click.option("--allow-master", metavar="URL", multiple=True, help="Let pipelines use this Spark cluster.")
@click.option(
    "--allow-checkpoints",
    metavar="PLACE",
    multiple=True,
    help="Let pipelines have checkpoints below this directory or URL, in addition to --state.",
)
@metrics_options
@click.option("--json-log", is_flag=True, help="The log as JSON, one object a line.")
@bootstrap_option
def serve(
    state: str | None,
    processes_max: int | None,
    programs: tuple[str, ...],
    allow_conf: tuple[str, ...],
    allow_master: tuple[str, ...],
    allow_checkpoints: tuple[str, ...],
    json_log: bool,
    bootstrap: str,
) -> None:
    """Run pipelines as `odradek pipeline` has them, until SIGTERM or Ctrl-C. A second signal kills them.

    Of several supervisors of one cluster one works and the others wait. Pipelines run as processes of this machine.
    """
    metrics = metrics_terms()
    events.configure(level="INFO", json_lines=json_log)
    check_reachable(bootstrap)
    directory = Path(state or Path(default_data_directory()) / "pipelines").absolute()
    environment, asked = program_environment(bootstrap), list[int]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))

    admission = ProgramAdmission(
        state_directory=directory,
        directories=programs,
        settings=allow_conf,
        masters=allow_master,
        checkpoints=allow_checkpoints,
        approvals=Approvals(),
    )

    def launch(document: PipelineDocument) -> RunnerProcess:
        places = admission.admit(document)
        return runner_process.RunnerProcess(
            serving.runner_command(document),
            terms=serving.runner_terms(document, bootstrap, directory, places),
            directory=directory,
            environment={"PYTHONUNBUFFERED": "1", **environment},
        )

    name = f"odradek-pipelines/{socket.gethostname()}/{os.getpid()}"
    terms = serving.ServeTerms(
        servers=bootstrap,
        client=client_arguments(name),
        state_directory=directory,
        policy=RestartPolicy(starting_count_max=usable_cpu_count(), process_count_max=processes_max),
        name=name,
        metrics=metrics,
    )
    serving.serve(
        terms,
        launch,
        SystemClock(),
        SystemEntropy(),
        should_stop=lambda: bool(asked),
        should_kill=lambda: len(asked) > 1,
        pause=time.sleep,
        tell=lambda line: say(line),
    )
