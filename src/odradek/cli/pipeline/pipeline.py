"""`odradek pipeline`: run, list, describe, start, stop, pause, resume, upgrade, state, logs, lag, delete, forget."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.moments import duration_ms
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import confirm, print_json, print_table, remark, say
from odradek.cli.pipeline import listing
from odradek.cli.pipeline.access import NO_SUPERVISOR, open_store, say_what_follows, who
from odradek.cli.pipeline.by_hand import approve_by_hand, spark_settings
from odradek.cli.pipeline.forget import forget
from odradek.cli.pipeline.state import repartition, reset
from odradek.cli.pipeline.state_show import state_group
from odradek.cli.pipeline.upgrade import upgrade
from odradek.model.lazy import lazy
from odradek.pipelines.document import DELIVERIES, PipelineDocument, PipelineVersion
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from odradek.cli.group import lag as group_lag
    from odradek.pipelines import membership
    from odradek.pipelines import store as pipeline_store
else:
    group_lag = lazy("odradek.cli.group.lag")
    membership = lazy("odradek.pipelines.membership")
    pipeline_store = lazy("odradek.pipelines.store")

_clock: Final = SystemClock()


@click.group()
def pipeline() -> None:
    """Run Spark pipelines, and look after them.

    What is wanted of a pipeline is kept in the cluster. `odradek pipelines serve` sees to it, on the machine where it runs.
    """


pipeline.add_command(forget)
pipeline.add_command(upgrade)
pipeline.add_command(reset)
pipeline.add_command(repartition)
pipeline.add_command(state_group)
name_argument: Final = click.argument("name")


@pipeline.command("run")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.argument("args", nargs=-1)
@click.option("--name", "-n", help="The pipeline's name; by default the file's, without .py.")
@click.option(
    "--master", metavar="URL", help="The master of a Spark cluster; by default this machine (local[*])."
)
@click.option(
    "--conf",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of its Spark session; may be given several times.",
)
@click.option(
    "--properties-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Settings of its Spark session, as of spark-submit: for secrets, which command lines show to others. --conf goes"
    " before it.",
)
@click.option(
    "--delivery",
    type=click.Choice(DELIVERIES),
    default=DELIVERIES[0],
    show_default=True,
    help="The delivery guarantee of a streams program.",
)
@click.option(
    "--checkpoint",
    metavar="PLACE",
    help="The directory or URL of the checkpoint; by default below the supervisor's --state.",
)
@click.option(
    "--sleep-after",
    metavar="DURATION",
    help="End its process after this long without input (10m), and start it when offsets of its inputs move.",
)
@bootstrap_option
@json_option
def run_(
    file: str,
    args: tuple[str, ...],
    name: str | None,
    master: str | None,
    settings: tuple[str, ...],
    properties_file: str | None,
    delivery: str,
    checkpoint: str | None,
    sleep_after: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Make a pipeline of a program, FILE.py, and have it run from now on. ARGS are the program's (after --)."""
    name = name or os.path.basename(file).removesuffix(".py")
    now_ms = _clock.wall_ms()
    version = PipelineVersion(
        number=1, program=file, args=args, checkpoint=checkpoint or f"{name}/v1", made_ms=now_ms
    )
    sleep_after_s = None if sleep_after is None else duration_ms(sleep_after) / 1000
    document = PipelineDocument(
        name=name,
        versions=(version,),
        master=master,
        conf=spark_settings(settings, properties_file),
        delivery=delivery,
        sleep_after_s=sleep_after_s,
    )

    def decide(before: PipelineDocument | None) -> PipelineDocument:
        if before is not None:
            raise pipeline_store.WrongPipelineState(
                f"there is a pipeline {name} already: choose another --name, or delete it first"
            )
        return document.changed(now_ms, who(), f"run {file}")

    with open_store(bootstrap) as store:
        approve_by_hand(document)
        made = store.change(name, decide)
        assert made is not None
        say_what_follows(store, made, as_json, f"pipeline {name} is to run")


@pipeline.command("list")
@bootstrap_option
@json_option
def list_(bootstrap: str, as_json: bool) -> None:
    """List pipelines: the desired state of each, and what it does."""
    with open_store(bootstrap) as store:
        table, statuses = store.table(), store.statuses()
        owner = membership.supervisor_of(store.admin)
    documents, unreadable = table.documents, table.unreadable
    if as_json:
        readable = [listing.as_json(document, statuses) for document in documents.values()]
        print_json(readable + [{"name": name, "unreadable": reason} for name, reason in unreadable.items()])
    elif documents or unreadable:
        now_ms = _clock.wall_ms()
        rows = [row for document in documents.values() for row in listing.rows(document, statuses, now_ms)]
        print_table(listing.COLUMNS, rows + [listing.unreadable_row(*pair) for pair in unreadable.items()])
    if owner is None and documents:
        remark(NO_SUPERVISOR)


@pipeline.command()
@name_argument
@bootstrap_option
@json_option
def describe(name: str, bootstrap: str, as_json: bool) -> None:
    """Show a pipeline: its program, its versions, what it does, its last failure, its history."""
    with open_store(bootstrap) as store:
        document, statuses = store.document(name), store.statuses()
        owner = membership.supervisor_of(store.admin)
    if as_json:
        print_json({**listing.as_json(document, statuses), "supervised_by": owner})
    else:
        for line in listing.description(document, statuses, owner, _clock.wall_ms()):
            say(line)


def _change_command(verb: str, help_text: str) -> None:
    @click.argument("names", metavar="NAME...", nargs=-1, required=True)
    @bootstrap_option
    @json_option
    def command(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
        with open_store(bootstrap) as store:
            for name in names:
                changed = store.set_desired(name, verb, by=who(), now_ms=_clock.wall_ms())
                say_what_follows(store, changed, as_json, f"pipeline {name} is to be {changed.desired.value}")

    pipeline.command(verb, help=help_text)(command)


_change_command("start", "Have pipelines run. One that failed tries again at once.")
_change_command("stop", "Have pipelines stop: their processes end.")
_change_command("pause", "Have pipelines read nothing; their processes stay, so that they go on at once.")
_change_command("resume", "Have paused pipelines go on.")


@pipeline.command()
@name_argument
@click.option("--lines", "-n", type=Whole(min=1), help="Show the last lines only, this many.")
@bootstrap_option
@json_option
def logs(name: str, lines: int | None, bootstrap: str, as_json: bool) -> None:
    """Print the last lines of a pipeline's log, as its supervisor published them."""
    with open_store(bootstrap) as store:
        store.document(name)
        status = store.statuses().get(name)
    texts = [] if status is None else list(status.log)[-(lines or 0) :]
    if as_json:
        print_json(texts)
    else:
        for text in texts:
            say(text)


@pipeline.command()
@name_argument
@bootstrap_option
@json_option
def lag(name: str, bootstrap: str, as_json: bool) -> None:
    """Show a pipeline's lag to its inputs, a row for each partition."""
    with open_store(bootstrap) as store:
        store.document(name)
        status = store.statuses().get(name)
        if status is None or status.inputs is None:
            raise pipeline_store.WrongPipelineState(f"pipeline {name} has not said yet what it reads")
        positions = status.positions
        ends = group_lag.end_offsets(store.admin, positions)
    columns = ("topic", "partition", "position", "end", "lag")
    rows = [
        (tp.topic, tp.partition, position, ends.get(tp), listing.behind(position, ends.get(tp)))
        for tp, position in sorted(positions.items())
    ]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


@pipeline.command()
@name_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
def delete(name: str, yes: bool, bootstrap: str) -> None:
    """Stop a pipeline and forget it. Its topics, its checkpoint and the decisions of its sinks stay."""
    with open_store(bootstrap) as store:
        document = store.document(name)
        if not yes and sys.stdin.isatty():
            confirm(f"Stop and forget pipeline {name}?", abort=True)

        def decide(before: PipelineDocument | None) -> None:
            if before is None:
                raise pipeline_store.no_such_pipeline(name, [])

        store.change(name, decide)
    remark(
        f"forgot pipeline {name}; its checkpoint stays: {document.current.checkpoint}."
        " A new pipeline with the same sinks needs it, or `odradek pipeline forget SINK --decision`"
    )
