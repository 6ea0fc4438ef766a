"""`odradek pipeline reset` and `repartition`: what a stopped pipeline keeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import confirm, remark
from odradek.cli.pipeline.access import open_store, say_what_follows, who
from odradek.config.data_directory import default_data_directory
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.lazy import lazy
from odradek.pipelines.outline import ProgramKind
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from odradek.pipelines import resetting
else:
    resetting = lazy("odradek.pipelines.resetting")

_clock: Final = SystemClock()


class NotRepartitioned(OdradekError):
    """The error of a state whose repartitioning by Spark failed."""


@click.command()
@click.argument("name")
@click.option("--empty-outputs", is_flag=True, help="Delete the records of its output topics, too.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
@json_option
def reset(name: str, empty_outputs: bool, yes: bool, bootstrap: str, as_json: bool) -> None:
    """Have a stopped pipeline begin again: without what it has read, its state, and what its sinks decided.

    When it is started, it reads its inputs from the program's start offsets, and writes all its output again.
    """
    with open_store(bootstrap) as store:
        store.document(name)
        if not yes and sys.stdin.isatty():
            what = (
                ", and empty its output topics" if empty_outputs else "; its output topics stay as they are"
            )
            confirm(f"Forget what {name} has read and its state{what}?", abort=True)
        changed, emptied = resetting.reset(
            store, name, emptying_outputs=empty_outputs, by=who(), now_ms=_clock.wall_ms()
        )
        outputs = f"; emptied {', '.join(emptied)}" if emptied else ""
        say_what_follows(store, changed, as_json, f"pipeline {name} begins again when it is started{outputs}")


@click.command()
@click.argument("name")
@click.argument("partitions", type=Whole(min=1, bits=31))
@click.option(
    "--state",
    metavar="DIR",
    help="The supervisor's --state directory on this machine; by default `pipelines` in Odradek's data directory.",
    type=click.Path(file_okay=False),
)
@bootstrap_option
def repartition(name: str, partitions: int, state: str | None, bootstrap: str) -> None:
    """Divide the state of a stopped pipeline among PARTITIONS tasks. Its checkpoint must be on this machine.

    For plain PySpark. A streams program sets its own number: `Streams(partitions=...)`, and `upgrade`.
    """
    with open_store(bootstrap) as store:
        document, status = store.document(name), store.statuses().get(name)
    resetting.check_stopped(document, status)
    outline = None if status is None else status.outline
    if outline is not None and outline.kind is ProgramKind.STREAMS:
        raise ConfigError(
            f"pipeline {name} is a program of odradek.streams: give Streams(partitions={partitions}), and upgrade it"
        )
    place = document.current.checkpoint
    if "://" in place:
        raise ConfigError(f"the checkpoint of {name} is {place}, and only one on this machine can be divided")
    directory = Path(state or Path(default_data_directory()) / "pipelines").absolute() / place
    words = [sys.executable, "-P", "-m", "odradek.pipelines.repartitioning", str(partitions), str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["it said nothing"]
        raise NotRepartitioned(f"the state of {name} was not divided: {lines[-1]}")
    for line in done.stdout.splitlines():
        remark(line)
