"""The part of `odradek config` that talks to a running cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from odradek.cli.cluster_access import open_admin
from odradek.cli.output import print_json, print_table, remark, warn
from odradek.config.topic import ineffective

if TYPE_CHECKING:
    from odradek.client.admin_types import ConfigResource

ALL_BROKERS = "all"


def show_resource(
    bootstrap: str, *, topic: str | None, broker: str | None, everything: bool, as_json: bool
) -> None:
    """Print the settings of a topic or a broker; without `everything`, those that somebody set."""
    from odradek.client.admin_types import ConfigSource

    resource = _resource(topic, broker)
    with open_admin(bootstrap) as admin:
        entries = admin.describe_configs([resource])[resource]
    shown = [
        (name, "(hidden)" if entry.sensitive else entry.value, _source(entry.source))
        for name, entry in sorted(entries.items())
        if everything or entry.source is not ConfigSource.DEFAULT
    ]
    if as_json:
        print_json([{"key": name, "value": value, "from": source} for name, value, source in shown])
    elif shown:
        print_table(["setting", "value", "from"], shown)
    else:
        click.echo(f"{resource}: everything is at its default (--all shows it).")


def change_resource(
    bootstrap: str, *, topic: str | None, broker: str | None, wanted: Mapping[str, str | None]
) -> None:
    """Set what has a value, and take back to its default what has none."""
    resource = _resource(topic, broker)
    with open_admin(bootstrap) as admin:
        admin.alter_configs({resource: wanted})
    if topic is not None:
        for warning in ineffective({key: value for key, value in wanted.items() if value is not None}):
            warn(warning)
    changes = (
        f"{key} is back at its default" if value is None else f"{key}={value}"
        for key, value in wanted.items()
    )
    remark(f"{resource}: {', '.join(changes)}")


def _resource(topic: str | None, broker: str | None) -> ConfigResource:
    from odradek.client import ConfigResource

    context = click.get_current_context()
    if (topic is None) == (broker is None):
        raise click.UsageError("name either a --topic or a --broker", context)
    if topic is not None:
        return ConfigResource.topic(topic)
    if broker == ALL_BROKERS:
        return ConfigResource.broker()
    if broker is None or not broker.isdecimal():
        raise click.UsageError(f"--broker {broker!r}: expected a number, or {ALL_BROKERS!r}", context)
    return ConfigResource.broker(int(broker))


def _source(source: object) -> str:
    return str(getattr(source, "name", source)).lower().replace("_", " ")
