"""The options of commands that serve metrics: where, and who may read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.net import metrics_page
else:
    metrics_page = lazy("odradek.net.metrics_page")

Command = TypeVar("Command", bound=Callable[..., object])
_NAMES: Final = ("metrics", "metrics_token_file", "metrics_certificate", "metrics_key")


def _keep(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = value


def metrics_options(command: Command) -> Command:
    """Adds `--metrics` and what belongs to it; `metrics_terms` returns what was given."""
    for option, metavar, meaning in (
        ("--metrics-key", "FILE", "The certificate's private key: PEM."),
        ("--metrics-certificate", "FILE", "For https: PEM."),
        (
            "--metrics-token-file",
            "FILE",
            "A token on each line, one of which a request must show. By default no one is asked.",
        ),
        (
            "--metrics",
            "HOST:PORT",
            "Serve metrics for Prometheus here: /metrics, /livez. Without HOST: on the loopback interface.",
        ),
    ):
        decorate = click.option(option, metavar=metavar, expose_value=False, callback=_keep, help=meaning)
        command = decorate(command)
    return command


def metrics_terms() -> metrics_page.PageTerms | None:
    """Returns the listener that the user asked for; None without `--metrics`. UsageError, or ConfigError for an address."""
    context = click.get_current_context()
    address, token_file, certificate, key = (context.meta.get(f"{__name__}.{name}") for name in _NAMES)
    if address is None:
        if token_file or certificate or key:
            raise click.UsageError("--metrics-token-file, -certificate and -key need --metrics", context)
        return None
    return metrics_page.PageTerms.of(address, token_file=token_file, certificate=certificate, key=key)
