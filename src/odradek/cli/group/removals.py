"""`odradek group delete-offsets` and `remove-members`: what a group forgets, and whom."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from odradek.cli.access import open_admin
from odradek.cli.group.offset_resets import parse_scopes
from odradek.cli.options import bootstrap_option, complete_groups, complete_topics, json_option
from odradek.cli.output import confirm, print_json, remark
from odradek.client.admin.group_descriptions import DEAD, SHARE
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Admin, GroupDescription

_yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")


@click.command("delete-offsets")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    metavar="NAME[:0,1]",
    multiple=True,
    required=True,
    shell_complete=complete_topics,
    help="A topic whose offsets the group forgets, or some of its partitions; a share group forgets whole topics.",
)
@_yes_option
@bootstrap_option
@json_option
def delete_offsets(name: str, topics: tuple[str, ...], yes: bool, bootstrap: str, as_json: bool) -> None:
    """Let a group forget what it has read of topics.

    A consumer group may go on reading other topics meanwhile; a share group must have no members.
    """
    scopes = parse_scopes(topics)
    deleted: list[dict[str, object]]
    if not yes and sys.stdin.isatty():
        confirm(f"Delete the offsets of {name} for {', '.join(topics)}?", abort=True)
    with open_admin(bootstrap) as admin:
        known = admin.describe_groups([name])[name]
        if known.type == SHARE:
            partial = [topic for topic, numbers in scopes.items() if numbers is not None]
            if partial:
                raise ConfigError(f"a share group forgets whole topics: name {partial[0]} without partitions")
            admin.delete_share_group_offsets(name, list(scopes))
            deleted = [{"topic": topic, "partition": None} for topic in scopes]
        else:
            partitions = _with_offsets(admin, name, scopes)
            admin.delete_group_offsets(name, partitions)
            deleted = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    if as_json:
        print_json({"group": name, "deleted": deleted})
    else:
        remark(f"{name} has forgotten {', '.join(topics)}")


def _with_offsets(admin: Admin, name: str, scopes: dict[str, tuple[int, ...] | None]) -> list[TopicPartition]:
    """Returns the partitions that are meant and that the group has offsets of; KafkaError for a topic without any."""
    committed = [tp for tp, offset in admin.list_group_offsets(name).items() if offset is not None]
    partitions: list[TopicPartition] = []
    for topic, numbers in scopes.items():
        chosen = [
            tp for tp in committed if tp.topic == topic and (numbers is None or tp.partition in numbers)
        ]
        if not chosen:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"group {name!r} has no offsets of {topic!r}"
            )
        partitions += chosen
    return sorted(partitions)


@click.command("remove-members")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--instance",
    "-i",
    "instances",
    metavar="ID",
    multiple=True,
    help="A static member, by its group.instance.id.",
)
@click.option("--all", "all_members", is_flag=True, help="All members, static or not.")
@click.option("--reason", metavar="TEXT", help="Why, for the log of the group's coordinator.")
@_yes_option
@bootstrap_option
@json_option
def remove_members(
    name: str,
    instances: tuple[str, ...],
    all_members: bool,
    reason: str | None,
    yes: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Remove members from a group of consumers, so that others get their partitions at once (KIP-345).

    A static member that does not come back keeps its partitions until its session ends. One that still runs joins again.

    \b
    odradek group remove-members billing --instance till-1 --reason "the till was sold"
    odradek group remove-members billing --all
    """
    if bool(instances) == all_members:
        raise click.UsageError(
            "say which members: --instance (it may be repeated) or --all", click.get_current_context()
        )
    whom = ", ".join(instances) if instances else "all members"
    if not yes and sys.stdin.isatty():
        confirm(f"Remove {whom} from {name}?", abort=True)
    with open_admin(bootstrap) as admin:
        admin.remove_group_members(name, instances or None, reason=reason)
    if as_json:
        print_json({"group": name, "removed": list(instances) if instances else "all"})
    else:
        remark(f"removed {whom} from {name}")


def idle_group(admin: Admin, name: str) -> GroupDescription | None:
    """Returns a group that has no members; None if there is no such group. NON_EMPTY_GROUP for one with members."""
    try:
        known = admin.describe_groups([name])[name]
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    if known.active:
        clients = ", ".join(
            sorted({f"{member.client_id} at {member.client_host}" for member in known.members})
        )
        count = len(known.members)
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {name!r} is {known.state} with {count} member(s) ({clients}): stop them first",
        )
    return None if known.state == DEAD else known
