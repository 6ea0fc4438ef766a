"""`odradek client-metrics`: which metrics clients push to brokers (KIP-714), as Kafka's `kafka-client-metrics.sh` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from odradek.cli.access import open_admin
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json, print_table, remark, say
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client.admin import types
    from odradek.client.admin.admin import Admin
else:
    types = lazy("odradek.client.admin.types")

_KEYS: Final = ("metrics", "interval.ms", "match")


class UnknownClientMetricsError(OdradekError):
    """The error for a subscription name that does not exist."""


@click.group("client-metrics")
def client_metrics() -> None:
    """List and change which metrics clients push to brokers.

    A subscription asks all clients that match it. What they push is in the brokers' /metrics, and in `odradek broker clients`.
    """


@client_metrics.command("list")
@bootstrap_option
@json_option
def list_(bootstrap: str, as_json: bool) -> None:
    """List the names of all subscriptions."""
    with open_admin(bootstrap) as admin:
        names = _names(admin)
    if as_json:
        print_json(names)
    elif names:
        for name in names:
            say(name)
    else:
        remark("there are no subscriptions")


@client_metrics.command()
@click.argument("name", required=False)
@bootstrap_option
@json_option
def describe(name: str | None, bootstrap: str, as_json: bool) -> None:
    """Show a subscription, or all of them."""
    with open_admin(bootstrap) as admin:
        known = _names(admin)
        names = known if name is None else [name]
        if name is not None and name not in known:
            raise _no_such(name)
        resources = {name: types.ConfigResource.client_metrics(name) for name in names}
        described = admin.describe_configs(list(resources.values())) if resources else {}
    rows = [
        (name, *(described[resource][key].value for key in _KEYS)) for name, resource in resources.items()
    ]
    if as_json:
        print_json([dict(zip(("name", *_KEYS), row, strict=True)) for row in rows])
    elif rows:
        print_table(("name", *_KEYS), rows)
    else:
        remark("there are no subscriptions")


@client_metrics.command()
@click.argument("name")
@click.option(
    "--metrics", metavar="PREFIXES", help="Beginnings of names, separated by commas; '*': all metrics."
)
@click.option("--interval", type=Whole(100, 3_600_000), metavar="MS", help="How often clients push.")
@click.option(
    "--match",
    metavar="SELECTORS",
    help="Which clients: NAME=PATTERN, separated by commas. NAME is client_id, client_instance_id, client_software_name, "
    "client_software_version, client_source_address or client_source_port.",
)
@bootstrap_option
def alter(name: str, metrics: str | None, interval: int | None, match: str | None, bootstrap: str) -> None:
    """Make a subscription, or change what the options name.

    An empty value takes it back to its default: no metrics, five minutes, all clients.
    """
    given = {"metrics": metrics, "interval.ms": None if interval is None else str(interval), "match": match}
    wanted = {key: value or None for key, value in given.items() if value is not None}
    if not wanted:
        raise click.UsageError(
            "say what is to change: --metrics, --interval or --match", click.get_current_context()
        )
    with open_admin(bootstrap) as admin:
        admin.alter_configs({types.ConfigResource.client_metrics(name): wanted})
    changes = ", ".join(f"{key}={value or '(default)'}" for key, value in wanted.items())
    remark(f"subscription {name}: {changes}")


@client_metrics.command()
@click.argument("name")
@bootstrap_option
def delete(name: str, bootstrap: str) -> None:
    """Delete a subscription. Clients stop pushing for it when they next ask for their subscriptions."""
    with open_admin(bootstrap) as admin:
        if name not in _names(admin):
            raise _no_such(name)
        admin.alter_configs({types.ConfigResource.client_metrics(name): dict.fromkeys(_KEYS)})
    remark(f"subscription {name} is deleted")


def _no_such(name: str) -> UnknownClientMetricsError:
    return UnknownClientMetricsError(
        f"there is no subscription {name}: odradek client-metrics list shows all, alter makes one"
    )


def _names(admin: Admin) -> list[str]:
    kinds = [types.ResourceType.CLIENT_METRICS]
    return sorted(resource.name for resource in admin.list_config_resources(kinds))
