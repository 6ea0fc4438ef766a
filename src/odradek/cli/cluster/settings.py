"""The part of `odradek config` that talks to a running cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from odradek import client
from odradek.cli.access import open_admin
from odradek.cli.output import print_json, print_table, remark, say, warn
from odradek.config.topic import ineffective
from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client.admin import types
else:
    types = lazy("odradek.client.admin.types")

ALL_BROKERS = "all"
_BY_NAME = ("topic", "group", "client_metrics")


def show_resource(
    bootstrap: str, named: Mapping[str, str | None], *, everything: bool, as_json: bool
) -> None:
    """Print the settings of what is named; without `everything`, those that someone set."""
    resource = _resource(named)
    with open_admin(bootstrap) as admin:
        entries = admin.describe_configs([resource])[resource]
    shown = [
        (name, "(hidden)" if entry.sensitive else entry.value, _source(entry.source))
        for name, entry in sorted(entries.items())
        if everything or entry.source is not types.ConfigSource.DEFAULT
    ]
    if as_json:
        print_json([{"key": name, "value": value, "from": source} for name, value, source in shown])
    elif shown:
        print_table(["setting", "value", "from"], shown)
    else:
        say(f"{resource}: everything is at its default (--all shows it).")


def change_resource(
    bootstrap: str, named: Mapping[str, str | None], *, wanted: Mapping[str, str | None]
) -> None:
    """Set what has a value, and take back to its default what has none."""
    resource = _resource(named)
    with open_admin(bootstrap) as admin:
        admin.alter_configs({resource: wanted})
    if named["topic"] is not None:
        for warning in ineffective({key: value for key, value in wanted.items() if value is not None}):
            warn(warning)
    changes = (
        f"{key} is back at its default" if value is None else f"{key}={value}"
        for key, value in wanted.items()
    )
    remark(f"{resource}: {', '.join(changes)}")


def _resource(named: Mapping[str, str | None]) -> client.ConfigResource:
    context = click.get_current_context()
    given = {kind: name for kind, name in named.items() if name is not None}
    if len(given) != 1:
        raise click.UsageError(
            "name one of --topic, --broker, --group, --loggers and --client-metrics", context
        )
    ((kind, name),) = given.items()
    if kind in _BY_NAME:
        return getattr(client.ConfigResource, kind)(name)  # type: ignore[no-any-return]
    if kind == "broker" and name == ALL_BROKERS:
        return client.ConfigResource.broker()
    if not is_digits(name):
        also = f", or {ALL_BROKERS!r}" if kind == "broker" else ""
        raise click.UsageError(f"--{kind} {name!r:.80}: expected a number{also}", context)
    return (
        client.ConfigResource.broker(int(name))
        if kind == "broker"
        else client.ConfigResource.loggers(int(name))
    )


def _source(source: object) -> str:
    return str(getattr(source, "name", source)).lower().replace("_", " ")
