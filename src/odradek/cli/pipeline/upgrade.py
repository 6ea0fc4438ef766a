"""`odradek pipeline upgrade`: another program in place of the one that runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json, print_table
from odradek.cli.pipeline.access import open_store, program_environment, say_what_follows, who
from odradek.cli.pipeline.by_hand import approve_program, check_approved
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.pipelines.upgrade import ModeVerdict, UpgradeMode
from odradek.runtime.real_clock import SystemClock

if TYPE_CHECKING:
    from odradek.pipelines import program_file, upgrading
    from odradek.pipelines.document import PipelineDocument
else:
    program_file = lazy("odradek.pipelines.program_file")
    upgrading = lazy("odradek.pipelines.upgrading")

_clock: Final = SystemClock()
_COLUMNS: Final = ("mode", "possible", "why not, and what to know")


@click.command()
@click.argument("name")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, resolve_path=True))
@click.argument("args", nargs=-1)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in UpgradeMode]),
    help="keep: the same checkpoint. carry: a new one, with the state of the changelog topics. rebuild: read everything"
    " into topics of its own, and swap when its lag is small.",
)
@click.option("--dry-run", is_flag=True, help="Show which modes are possible, and why the others are not.")
@click.option(
    "--swap-lag",
    type=Whole(min=0),
    help="rebuild: swap when at most this number of records is left. [default: 1000]",
)
@click.option("--swap", "swap_now", is_flag=True, help="Swap to the version that is being rebuilt now.")
@click.option("--abandon", is_flag=True, help="Give up the version that is being rebuilt.")
@bootstrap_option
@json_option
def upgrade(
    name: str,
    file: str | None,
    args: tuple[str, ...],
    mode: str | None,
    dry_run: bool,
    swap_lag: int | None,
    swap_now: bool,
    abandon: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Have a pipeline run another program, FILE.py, or its own file, which was changed. ARGS stay when FILE is not given."""
    if sum((mode is not None, dry_run and mode is None, swap_now, abandon)) != 1:
        raise ConfigError("upgrade: give --mode (keep, carry or rebuild), --dry-run, --swap or --abandon")
    with open_store(bootstrap) as store:
        if swap_now or abandon:
            do = upgrading.swap if swap_now else upgrading.abandon
            changed = do(store, name, by=who(), now_ms=_clock.wall_ms())
            what = "takes over" if swap_now else "is given up; its topics and its checkpoint stay"
            say_what_follows(store, changed, as_json, f"the version of {name} that was rebuilt {what}")
            return
        document = store.document(name)
        program = _next_program(document, file, args, bootstrap)
        if dry_run or mode is None:
            _show(upgrading.preview(store, document, program), as_json)
            return
        approve_program(program.file, program.args)
        changed = upgrading.upgrade(
            store,
            name,
            program,
            UpgradeMode(mode),
            by=who(),
            now_ms=_clock.wall_ms(),
            swap_lag=swap_lag,
        )
        number = (changed.candidate or changed.current).number
        say_what_follows(store, changed, as_json, f"pipeline {name} gets version {number} by {mode}")


def _next_program(
    document: PipelineDocument, file: str | None, args: tuple[str, ...], bootstrap: str
) -> upgrading.NextProgram:
    current = document.current
    if file is None:
        file, args = current.program, current.args
        check_approved(document.name, file, args)
    environment = program_environment(bootstrap)
    outline = program_file.outline_of_file(Path(file), args, environment)
    continued = outline
    if current.suffix:
        continued = program_file.outline_of_file(Path(file), args, environment, current.suffix)
    return upgrading.NextProgram(file=file, args=args, outline=outline, continued=continued)


def _show(verdicts: tuple[ModeVerdict, ...], as_json: bool) -> None:
    if as_json:
        print_json([{"possible": verdict.is_possible, **asdict(verdict)} for verdict in verdicts])
    else:
        print_table(_COLUMNS, upgrading.words(verdicts))
