"""`odradek cluster`: who belongs to it, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from odradek.cli.cluster_access import open_admin
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import bytes_text, print_json, print_table
from odradek.config.listeners import format_address

if TYPE_CHECKING:
    from odradek.client.admin_types import BrokerDescription, LogDirDescription


@click.group()
def cluster() -> None:
    """Describe the cluster and its brokers."""


@cluster.command()
@bootstrap_option
@json_option
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the cluster's id, its brokers, and what their data directories hold."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
        directories = admin.describe_log_dirs()
    if as_json:
        brokers = [_as_json(broker, found.controller_id, directories) for broker in found.brokers]
        print_json({"cluster": found.cluster_id, "controller": found.controller_id, "brokers": brokers})
        return
    click.echo(f"cluster {found.cluster_id}")
    rows: list[list[object]] = []
    for broker in found.brokers:
        address = format_address(broker.host, broker.port)
        own = [broker.broker_id, address, broker.rack, broker.broker_id == found.controller_id]
        held = directories.get(broker.broker_id, ())
        rows += [[*own, *_cells(directory)] for directory in held] or [[*own, *[None] * 5]]
    columns = ["broker", "address", "rack", "controller", "directory", "partitions", "holds", "free", "error"]
    print_table(columns, rows)


def _cells(directory: LogDirDescription) -> tuple[object, ...]:
    free = bytes_text(directory.usable_bytes) if directory.usable_bytes >= 0 else None
    return (directory.path, len(directory.replicas), bytes_text(_held(directory)), free, directory.error)


def _held(directory: LogDirDescription) -> int:
    return sum(replica.size_bytes for replica in directory.replicas.values())


def _as_json(
    broker: BrokerDescription, controller_id: int, directories: Mapping[int, Sequence[LogDirDescription]]
) -> dict[str, object]:
    return {
        "broker": broker.broker_id,
        "address": format_address(broker.host, broker.port),
        "rack": broker.rack,
        "controller": broker.broker_id == controller_id,
        "directories": [
            {
                "path": directory.path,
                "partitions": len(directory.replicas),
                "bytes": _held(directory),
                "free_bytes": directory.usable_bytes if directory.usable_bytes >= 0 else None,
                "error": directory.error,
            }
            for directory in directories.get(broker.broker_id, ())
        ],
    }
