"""`odradek broker`: what one broker shows of itself on its metrics listener."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypedDict, TypeVar

import click

from odradek.cli.numbers import Whole
from odradek.cli.options import json_option
from odradek.cli.output import print_json, print_table, remark
from odradek.model.errors import ConfigError
from odradek.net import listener_pages

Command = TypeVar("Command", bound=Callable[..., object])

_CLIENT_COLUMNS: Final = ("client", "instance", "software", "address", "pushes", "last", "metrics")
_STAGES: Final = ("queued", "handled", "waited", "response_queued", "sent")


@click.group()
def broker() -> None:
    """Look at one broker, through its metrics listener (metrics.listeners)."""


_metrics_option = click.option(
    "--metrics",
    metavar="HOST:PORT",
    envvar="ODRADEK_METRICS",
    default="127.0.0.1:9464",
    show_default=True,
    help="The broker's metrics listener.",
)


_token_option = click.option(
    "--token-file",
    metavar="FILE",
    envvar="ODRADEK_METRICS_TOKEN_FILE",
    help="A file whose first line is the token that the listener asks for (odradek.metrics.token.file).",
)
_ca_option = click.option(
    "--ca",
    metavar="FILE",
    envvar="ODRADEK_METRICS_CA",
    help="Speak TLS, and trust these authorities (PEM).",
)


def access_options(command: Command) -> Command:
    """Adds the options by which a listener with tokens and TLS is reached."""
    return _token_option(_ca_option(command))


@broker.command()
@_metrics_option
@access_options
@click.option(
    "--limit", type=Whole(1), default=20, show_default=True, help="Show at most this many requests."
)
@json_option
def slow(metrics: str, token_file: str | None, ca: str | None, limit: int, as_json: bool) -> None:
    """List the last slow requests, the newest first, with the milliseconds of each stage.

    A request is slow if it takes longer than odradek.slow.request.ms.
    """
    requests: list[dict[str, Any]] = _json_page(metrics, "/slow", token_file, ca)[:limit]
    if as_json:
        print_json(requests)
        return
    columns = ("at", "request", "client", "peer", "total", *_STAGES)
    rows = [
        (
            datetime.fromtimestamp(request["at_ms"] / 1_000, UTC).isoformat(" ", "milliseconds"),
            f"{request['request']} v{request['version']}",
            request["client_id"],
            request["peer"],
            request["total_ms"],
            *(request[f"{stage}_ms"] for stage in _STAGES),
        )
        for request in requests
    ]
    if rows:
        print_table(columns, rows)
    else:
        remark("no request was slow")


@broker.command()
@_metrics_option
@access_options
@click.option(
    "--client", metavar="ID", help="Show the metrics of this client id, or of this client instance."
)
@click.option("--name", metavar="PREFIX", default="", help="Only metrics whose names begin with this.")
@json_option
def clients(
    metrics: str, token_file: str | None, ca: str | None, client: str | None, name: str, as_json: bool
) -> None:
    """List the clients that push metrics to this broker, or the metrics of one.

    Clients push what `odradek client-metrics alter` subscribes to (KIP-714), each to one broker.
    """
    pushing: list[_PushingClient] = _json_page(metrics, "/clients", token_file, ca)
    shown = [entry for entry in pushing if client in (None, entry["client_id"], entry["client_instance_id"])]
    for entry in shown:
        entry["metrics"] = [metric for metric in entry["metrics"] if metric["name"].startswith(name)]
    if as_json:
        print_json(shown)
    elif not shown:
        remark("no client pushed metrics to this broker" if client is None else f"{client} pushed no metrics")
    elif client is None:
        print_table(_CLIENT_COLUMNS, [_client_row(entry) for entry in shown])
    else:
        print_table(
            ("client", "instance", "metric", "labels", "value"),
            [
                (
                    entry["client_id"],
                    entry["client_instance_id"],
                    metric["name"],
                    _labels(metric),
                    metric["value"],
                )
                for entry in shown
                for metric in entry["metrics"]
            ],
        )


class _PushedMetric(TypedDict):
    """A metric of a client on the page /clients."""

    name: str
    labels: dict[str, str]
    value: float


class _PushingClient(TypedDict):
    """A client on the page /clients."""

    client_id: str
    client_instance_id: str
    software: str
    address: str
    port: int
    pushes: int
    seconds_since_last: float
    has_ended: bool
    metrics: list[_PushedMetric]


def _client_row(entry: _PushingClient) -> tuple[object, ...]:
    return (
        entry["client_id"],
        entry["client_instance_id"],
        entry["software"],
        f"{entry['address']}:{entry['port']}",
        entry["pushes"],
        f"{entry['seconds_since_last']:.0f} s ago" + (", ended" if entry["has_ended"] else ""),
        len(entry["metrics"]),
    )


def _labels(metric: _PushedMetric) -> str:
    return ", ".join(f"{key}={value}" for key, value in metric["labels"].items())


def _json_page(address: str, path: str, token_file: str | None, ca: str | None) -> Any:
    """Returns a page that is JSON. ListenerPageError when there is none."""
    access = listener_pages.ListenerAccess(token_file=token_file, ca=ca)
    body = asyncio.run(listener_pages.page(listener_address(address), path, access))
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise listener_pages.ListenerPageError(
            f"{address} is no metrics listener of a broker: its answer is no JSON"
        ) from error


def listener_address(text: str) -> listener_pages.ListenerAddress:
    """Parses a value of `--metrics`. UsageError for one that is no address."""
    try:
        return listener_pages.ListenerAddress.of(text)
    except ConfigError as error:
        raise click.UsageError(f"--metrics {text!r}: {error}", click.get_current_context()) from error
