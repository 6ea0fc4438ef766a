"""`odradek quota`: how much clients may use; list, set, delete."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from odradek import client
from odradek.cli.access import open_admin
from odradek.cli.options import bootstrap_option, json_option, pairs
from odradek.cli.output import print_json, print_table, remark, say
from odradek.client.admin.quotas import QUOTA_MEANINGS
from odradek.model.java_numbers import finite_number
from odradek.model.near_names import near_name

Command = TypeVar("Command", bound=Callable[..., object])

ANY: Final = ""


def _entity_options(command: Command) -> Command:
    for name, what in (("user", "user"), ("client", "client id"), ("ip", "address")):
        command = click.option(f"--any-{name}", is_flag=True, help=f"Of every other {what}: its default.")(
            command
        )
        command = click.option(f"--{name}", metavar="NAME", help=f"Of this {what}.")(command)
    return command


def _entity(named: dict[str, Any], *, required: bool) -> client.QuotaEntity:
    results: dict[str, str] = {}
    for option, field in (("user", "user"), ("client", "client_id"), ("ip", "ip")):
        name, is_any = named[option], named[f"any_{option}"]
        if name and is_any:
            raise _wrong(f"--{option} and --any-{option} exclude each other")
        if name == "":
            raise _wrong(f"--{option} is empty: --any-{option} means every other one")
        if name or is_any:
            results[field] = ANY if is_any else name
    if required and not results:
        raise _wrong("name who the quota is for: --user, --client, --ip, or --any-... for their defaults")
    return client.QuotaEntity(**results)


def _wrong(message: str) -> click.UsageError:
    return click.UsageError(message, click.get_current_context())


@click.group()
def quota() -> None:
    """Limit what users, client ids and addresses may use.

    A client comes under the most specific limit: of its user and client id together, then of its user, then of its client
    id; and --any-... sets the limit of those that have none of their own.
    """


@quota.command("list")
@_entity_options
@bootstrap_option
@json_option
def list_(bootstrap: str, as_json: bool, **named: object) -> None:
    """List quotas: all of them, or the named entities' only."""
    with open_admin(bootstrap) as admin:
        quotas = admin.describe_quotas(_entity(named, required=False))
    rows = [
        (entity.user, entity.client_id, entity.ip, key, value)
        for entity, limits in sorted(quotas.items(), key=lambda entry: str(entry[0]))
        for key, value in sorted(limits.items())
    ]
    if as_json:
        columns = ("user", "client_id", "ip", "quota", "value")
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        shown = [(*("any other" if name == ANY else name for name in row[:3]), *row[3:]) for row in rows]
        print_table(("user", "client id", "ip", "quota", "value"), shown)
    else:
        say("There are no quotas.")


@quota.command("set")
@click.argument("limits", metavar="QUOTA=NUMBER...", nargs=-1, required=True)
@_entity_options
@bootstrap_option
def set_(limits: tuple[str, ...], bootstrap: str, **named: object) -> None:
    """Set quotas; they are effective at once.

    \b
    producer_byte_rate        bytes a second that may be produced
    consumer_byte_rate        bytes a second that may be consumed
    request_percentage        percent of a broker's time that requests may take
    controller_mutation_rate  partitions a second that may be created and deleted
    connection_creation_rate  connections a second from an address (with --ip)
    """
    entity = _entity(named, required=True)
    wanted = {key: _number(key, value) for key, value in pairs(limits, "quota").items()}
    with open_admin(bootstrap) as admin:
        admin.alter_quotas({entity: wanted})
    remark(f"{entity}: {', '.join(f'{key}={value:.15g}' for key, value in wanted.items())}")


@quota.command()
@click.argument("keys", metavar="[QUOTA]...", nargs=-1)
@_entity_options
@bootstrap_option
def delete(keys: tuple[str, ...], bootstrap: str, **named: object) -> None:
    """Remove quotas of the named entities; all that they have when no QUOTA is given."""
    entity = _entity(named, required=True)
    for key in keys:
        _known(key)
    with open_admin(bootstrap) as admin:
        gone = keys or tuple(admin.describe_quotas(entity).get(entity, ()))
        if gone:
            admin.alter_quotas({entity: dict.fromkeys(gone)})
    remark(f"{entity}: {', '.join(gone)} removed" if gone else f"{entity} had no quotas")


def _number(key: str, value: str | None) -> float:
    _known(key)
    try:
        return finite_number(value or "")
    except ValueError:
        raise _wrong(f"{key}={value!s:.80}: expected a number, {QUOTA_MEANINGS[key]}") from None


def _known(key: str) -> None:
    if key not in QUOTA_MEANINGS:
        meant = near_name(key, QUOTA_MEANINGS)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(QUOTA_MEANINGS)}"
        raise _wrong(f"there is no quota {key!r}; {hint}")
