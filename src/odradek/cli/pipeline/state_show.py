"""`odradek pipeline state show | export`: what the operators of a pipeline keep, by key."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek.cli.access import client_arguments
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option
from odradek.cli.output import print_table, remark
from odradek.cli.pipeline.access import open_store
from odradek.model.lazy import lazy
from odradek.model.safe_text import safe_json
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from odradek.pipelines import state_export, state_reading
    from odradek.pipelines.carrying import OperatorState
    from odradek.pipelines.store import PipelineStore
else:
    state_export = lazy("odradek.pipelines.state_export")
    state_reading = lazy("odradek.pipelines.state_reading")

Command = TypeVar("Command", bound="Callable[..., object]")

_COLUMNS: Final = ("part", "key", "value", "task")
_name_argument: Final = click.argument("name", metavar="PIPELINE")
_operator_argument: Final = click.argument("operator", required=False)


def _output_option(function: Command) -> Command:
    return click.option("--output", metavar="NAME", help="Only the state of this output of the program.")(
        function
    )


@click.group("state")
def state_group() -> None:
    """Look at what the operators of a pipeline keep, as their changelog topics have it (committed records only).

    For programs of odradek.streams. `describe` shows their operators.
    """


@state_group.command()
@_name_argument
@_operator_argument
@_output_option
@click.option(
    "--limit",
    type=Whole(min=1),
    default=100,
    show_default=True,
    help="Show at most this many rows of each operator.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all rows, one JSON object on each line.")
@bootstrap_option
def show(
    name: str, operator: str | None, output: str | None, limit: int, as_json: bool, bootstrap: str
) -> None:
    """Print keys and values of an operator's state, or of all operators.

    A part is a map that the operator keeps: its own name for it. The key is null for what belongs to a whole task.
    """
    with open_store(bootstrap) as store:
        places = _chosen(store, name, operator, output)
        for place in places:
            with state_reading.committed_rows(
                store.admin, bootstrap, place.topic, SystemClock(), **client_arguments()
            ) as rows:
                if as_json:
                    state_export.JsonLines(sys.stdout).write(place, rows)
                    continue
                if len(places) > 1:
                    remark(f"{place.operator} (output {place.output}):")
                some = list(islice(rows, limit))
                print_table(
                    _COLUMNS, [(row.part, _text(row.key), _text(row.value), row.task) for row in some]
                )
                if next(rows, None) is not None:
                    remark(
                        f"and more: --limit, --json, or `odradek pipeline state export {name} {place.operator}`"
                    )


@state_group.command()
@_name_argument
@_operator_argument
@_output_option
@click.option(
    "--to",
    "path",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="A new file: NAME.jsonl for JSON lines, NAME.parquet for Parquet.",
)
@bootstrap_option
def export(name: str, operator: str | None, output: str | None, path: Path, bootstrap: str) -> None:
    """Write keys and values of an operator's state, or of all operators, to a file."""
    with open_store(bootstrap) as store:
        places = _chosen(store, name, operator, output)
        with state_export.state_file(path) as file:
            for place in places:
                with state_reading.committed_rows(
                    store.admin, bootstrap, place.topic, SystemClock(), **client_arguments()
                ) as rows:
                    count = file.write(place, rows)
                remark(f"{place.operator} (output {place.output}): {count} rows to {path}")


def _chosen(store: PipelineStore, name: str, operator: str | None, output: str | None) -> list[OperatorState]:
    store.document(name)
    return state_reading.chosen_states(name, store.statuses().get(name), operator, output)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return safe_json(value)
