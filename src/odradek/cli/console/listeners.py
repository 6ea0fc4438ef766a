"""Options of `odradek console` for the brokers' metrics listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek.cli.broker import listener_address
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.console.listeners import reading
    from odradek.net import listener_pages
else:
    reading = lazy("odradek.console.listeners.reading")
    listener_pages = lazy("odradek.net.listener_pages")

Command = TypeVar("Command", bound=Callable[..., object])
_OPTIONS: Final = (
    (
        "--metrics-ca",
        "FILE",
        "ODRADEK_METRICS_CA",
        "Speak TLS to metrics listeners, and trust these authorities (PEM).",
    ),
    (
        "--metrics-token-file",
        "FILE",
        "ODRADEK_METRICS_TOKEN_FILE",
        "A file whose first line is the token that metrics listeners ask for (odradek.metrics.token.file).",
    ),
    (
        "--metrics",
        "HOST:PORT",
        "ODRADEK_METRICS",
        "The metrics listener of a broker, for the pages of traffic and certificates; once for each broker.",
    ),
)
"""Name, metavar, variable and meaning of each option."""


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = value


def listener_options(command: Command) -> Command:
    """Adds `--metrics` and what belongs to it; `listener_terms` returns what was set."""
    for option, metavar, variable, meaning in _OPTIONS:
        decorate = click.option(
            option,
            metavar=metavar,
            envvar=variable,
            multiple=option == "--metrics",
            expose_value=False,
            callback=_keep,
            help=meaning,
        )
        command = decorate(command)
    return command


def listener_terms(started: tuple[str, ...] | None = None) -> reading.ListenerTerms | None:
    """Returns the metrics listeners that the user named, or else the listeners of brokers `started` here;
    None without any.

    UsageError for what is no address, ListenerPageError for files that cannot be read.
    """
    meta = click.get_current_context().meta
    names = started if started is not None else meta[f"{__name__}.metrics"]
    if not names:
        return None
    if len(names) > reading.LISTENERS_MAX:
        raise ConfigError(f"--metrics may be given {reading.LISTENERS_MAX} times")
    access = listener_pages.ListenerAccess()
    if started is None:
        access = listener_pages.ListenerAccess(
            token_file=meta[f"{__name__}.metrics_token_file"], ca=meta[f"{__name__}.metrics_ca"]
        )
    access.headers()
    access.context()
    return reading.ListenerTerms(addresses=tuple(dict.fromkeys(map(listener_address, names))), access=access)
