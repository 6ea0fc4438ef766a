"""`odradek serve`: run a broker in this process. It must start fast: import nothing here that it can do without."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from odradek.cli.numbers import Whole
from odradek.cli.options import broker_settings_options
from odradek.cli.serving.broker_settings import gather, read_settings
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.broker import process
    from odradek.cli.serving import many_brokers
    from odradek.config import loading
else:
    process = lazy("odradek.broker.process")
    many_brokers = lazy("odradek.cli.serving.many_brokers")
    loading = lazy("odradek.config.loading")


@click.command()
@broker_settings_options
@click.option("--log-json", is_flag=True, help="Write the log as JSON lines.")
@click.option(
    "--log-level",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    default="INFO",
    show_default=True,
    help="How much to log on standard error.",
)
@click.option(
    "--join",
    metavar="DIR",
    help="Join the broker, or the brokers of --brokers, on this machine whose data directory this is.",
)
@click.option(
    "--brokers",
    type=Whole(1, 64),
    metavar="N",
    help="Run N brokers as one cluster, each a process with a core of its own to use, on ports that follow one another.",
)
@click.option(
    "--secure",
    metavar="DIR",
    help="With TLS, logins and ACLs: makes in DIR, once, an authority, a certificate, a first user; says how to connect.",
)
@click.option(
    "--lifeline", type=Whole(), hidden=True, help="A pipe: the broker stops when its other end closes."
)
@click.option(
    "--settings-from", type=Whole(), hidden=True, help="A pipe: settings from the parent, as a JSON object."
)
@click.pass_context
def serve(
    context: click.Context,
    file: str | None,
    settings: tuple[str, ...],
    listen: str | None,
    data: str | None,
    log_json: bool,
    log_level: str,
    join: str | None,
    brokers: int | None,
    secure: str | None,
    lifeline: int | None,
    settings_from: int | None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    With no argument at all it listens on 127.0.0.1:9092 and keeps its data in ~/.local/share/odradek. It prints
    "ready HOST:PORT" on standard output once it accepts connections. Settings have Kafka's names; flags win over
    variables (ODRADEK_LOG_RETENTION_MS), and those over the file.
    """
    if brokers is not None:
        options = (*(["--log-json"] if log_json else []), "--log-level", log_level)
        collected = gather(file, settings, listen, data, secure=secure, brokers=brokers)
        context.exit(many_brokers.serve_many(brokers, collected, join=join, options=options))
    with no_collections():
        handed_over = None if settings_from is None else read_settings(settings_from)
        collected = gather(file, settings, listen, data, join, secure, handed_over)
        config, warnings = loading.load_broker_config(collected.values)
        code = process.run(
            config,
            [*collected.warnings, *warnings],
            json_log=log_json,
            log_level=log_level.upper(),
            lifeline=lifeline,
        )
    context.exit(code)


@contextmanager
def no_collections() -> Iterator[None]:
    """Disables the garbage collector, until the broker is ready and enables it, or the context ends.

    Almost all that is made until then lives as long as the process: collections cost 6% of the start.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
