"""`odradek doctor`: a line for each thing that a broker, its clients and its pipelines need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from odradek.cli.doctor.checks import (
    Finding,
    Level,
    check_advertised,
    check_bootstrap,
    check_clock,
    check_descriptors,
    check_directories,
    check_engine,
    check_extras,
    check_identity,
    check_java,
    check_listeners,
    check_python,
    check_zookeeper,
    fail,
    ok,
    warn,
)
from odradek.cli.doctor.security import check_security
from odradek.cli.options import broker_settings_options, command_config_option, json_option
from odradek.cli.serving.broker_settings import gather
from odradek.config.loading import load_broker_config
from odradek.config.sources import CollectedConfig
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.cli import output
else:
    output = lazy("odradek.cli.output")

_COLOURS = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


@click.command()
@broker_settings_options
@click.option(
    "--bootstrap",
    "-b",
    metavar="HOST:PORT",
    envvar="ODRADEK_BOOTSTRAP",
    help="Also look at a running broker.",
)
@command_config_option
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    file: str | None,
    settings: tuple[str, ...],
    listen: str | None,
    data: str | None,
    bootstrap: str | None,
    as_json: bool,
) -> None:
    """Check what a broker needs, and explain what is in its way.

    Takes the same arguments as `serve` and looks at what `serve` would do with them. The exit code is 1 if anything
    fails; warnings leave it 0.
    """
    findings = list(_findings(file, settings, listen, data, bootstrap))
    if as_json:
        output.print_json(
            [
                {
                    "level": finding.level.value,
                    "about": finding.about,
                    "seen": finding.seen,
                    "advice": finding.advice,
                }
                for finding in findings
            ]
        )
    else:
        for finding in findings:
            output.say(_line(finding), label=_label(finding))
    context.exit(1 if any(finding.level is Level.FAIL for finding in findings) else 0)


def _label(finding: Finding) -> str:
    return click.style(f"{finding.level.value:<4}", fg=_COLOURS[finding.level])


def _line(finding: Finding) -> str:
    advice = f" -> {finding.advice}" if finding.advice else ""
    return f"  {finding.about}: {finding.seen}{advice}"


def _findings(
    file: str | None, settings: tuple[str, ...], listen: str | None, data: str | None, bootstrap: str | None
) -> Iterator[Finding]:
    yield check_python()
    yield check_engine()
    yield check_extras()
    yield check_java()
    yield check_descriptors()
    try:
        collected = gather(file, settings, listen, data)
        config, warnings = load_broker_config(collected.values)
    except ConfigError as error:
        yield fail("settings", str(error), "correct them: `odradek config describe KEY` explains one")
    else:
        yield from _settings(collected, warnings)
        yield from check_clock(config)
        yield from check_directories(config)
        yield from check_identity(config)
        yield from check_listeners(config)
        yield from check_advertised(config)
        yield from check_security(config)
        yield from check_zookeeper(config)
    if bootstrap:
        yield from check_bootstrap(bootstrap)


def _settings(collected: CollectedConfig, warnings: list[str]) -> Iterator[Finding]:
    for warning in (*collected.warnings, *warnings):
        yield warn("settings", warning, "remove it, or live without it")
    if not warnings:
        count = len(collected.values)
        yield ok(
            "settings", f"{count} given, all of them have an effect" if count else "none given: all defaults"
        )
