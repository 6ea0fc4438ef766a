"""`odradek group`: list, describe, reset-offsets, delete-offsets, remove-members, delete."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek import client
from odradek.cli.access import open_admin
from odradek.cli.group.lag import AgesOf, GroupLag, describe_group, first_unread_ages
from odradek.cli.group.offset_resets import parse_plan, parse_scopes
from odradek.cli.group.removals import delete_offsets, idle_group, remove_members
from odradek.cli.moments import parse_moment_or_duration
from odradek.cli.numbers import Real, Whole
from odradek.cli.options import bootstrap_option, complete_groups, complete_topics, json_option
from odradek.cli.output import RefreshingTable, confirm, print_json, print_table, remark, say
from odradek.client.admin.group_descriptions import SHARE
from odradek.client.groups.offset_target import PartitionFacts, Target
from odradek.client.groups.values import OffsetAndMetadata
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from odradek.client import Admin, GroupDescription
    from odradek.client.groups.values import CommittedOffsets

groups_argument = click.argument(
    "names", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_groups
)
LAG_COLUMNS = ("topic", "partition", "committed", "end", "lag", "lag_seconds", "member", "client", "host")
_LAG_HEADS = [column.replace("_", " ") for column in LAG_COLUMNS]


@click.group()
def group() -> None:
    """List, describe and delete groups of consumers, and set their offsets."""


group.add_command(delete_offsets)
group.add_command(remove_members)


@group.command("list")
@click.option("--state", "-s", "states", multiple=True, help="Only groups in this state: Stable, Empty, ...")
@click.option(
    "--type",
    "-t",
    "types",
    multiple=True,
    help="Only groups of this type: classic, consumer, share, streams.",
)
@bootstrap_option
@json_option
def list_(states: tuple[str, ...], types: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """List groups."""
    with open_admin(bootstrap) as admin:
        groups = admin.list_groups(states=states, types=types)
    if as_json:
        print_json(
            [
                {
                    "group": group_listing.group_id,
                    "type": group_listing.type,
                    "state": group_listing.state,
                    "protocol": group_listing.protocol_type,
                }
                for group_listing in groups
            ]
        )
    elif groups:
        print_table(
            ["group", "type", "state", "protocol"],
            [
                (
                    group_listing.group_id,
                    group_listing.type or None,
                    group_listing.state or None,
                    group_listing.protocol_type,
                )
                for group_listing in groups
            ],
        )


@group.command()
@groups_argument
@click.option(
    "--members", "-m", is_flag=True, help="Show the members and what each reads, in place of the lag."
)
@click.option("--watch", "-w", is_flag=True, help="Show the lag again and again, in place, until Ctrl-C.")
@click.option(
    "--every",
    type=Real(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: the seconds between two refreshes.",
)
@click.option("--times", type=Whole(min=1), help="With --watch: end after this many refreshes.")
@bootstrap_option
@json_option
def describe(
    names: tuple[str, ...],
    members: bool,
    watch: bool,
    every: float,
    times: int | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show each group's committed offsets, its lag, and its members' partitions."""
    chosen = list(dict.fromkeys(names))
    ages_of = partial(first_unread_ages, bootstrap)
    with open_admin(bootstrap) as admin:
        if not watch:
            _show([describe_group(admin, name, ages_of) for name in chosen], members, as_json)
            return
        _watch(admin, chosen, ages_of, every, times, as_json)


def _show(groups: list[GroupLag], members: bool, as_json: bool) -> None:
    if as_json:
        print_json(groups)
        return
    for number, group in enumerate(groups):
        if number:
            say()
        say(_headline(group))
        if members:
            columns = ("member", "instance", "client", "host", "partitions")
            print_table(columns, [[row[column] for column in columns] for row in group["members"]])
        else:
            print_table(_LAG_HEADS, _lag_rows(group))


def _watch(
    admin: Admin, names: list[str], ages_of: AgesOf, every_s: float, times: int | None, as_json: bool
) -> None:
    looks = 0
    with RefreshingTable(["group", *_LAG_HEADS]) as table:
        try:
            while True:
                answers = [describe_group(admin, name, ages_of) for name in names]
                if as_json:
                    print_json(answers)
                    sys.stdout.flush()
                else:
                    rows = [[group["group"], *row] for group in answers for row in _lag_rows(group)]
                    table.show(rows, "   ".join(map(_headline, answers)))
                looks += 1
                if times is not None and looks >= times:
                    return
                time.sleep(every_s)
        except KeyboardInterrupt:
            return


def _headline(group: GroupLag) -> str:
    assignor = f", {group['assignor']}" if group["assignor"] else ""
    count = len(group["members"])
    members = "1 member" if count == 1 else f"{count} members"
    seconds = "" if group["lag_seconds"] is None else f", {group['lag_seconds']:g} s behind"
    return f"{group['group']}  {group['type']}, {group['state']}{assignor}, {members}, lag {group['lag']}{seconds}"


def _lag_rows(group: GroupLag) -> list[list[object]]:
    return [[row[column] for column in LAG_COLUMNS] for row in group["offsets"]]


@group.command("reset-offsets")
@click.argument("name", metavar="GROUP", shell_complete=complete_groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    metavar="NAME[:0,1]",
    multiple=True,
    shell_complete=complete_topics,
    help="A topic, or some of its partitions. By default every topic that the group has offsets of.",
)
@click.option(
    "--to-earliest", "words", flag_value="earliest", multiple=True, help="Set offsets to the first record."
)
@click.option(
    "--to-latest",
    "words",
    flag_value="latest",
    multiple=True,
    help="Set offsets to the end, after the last record.",
)
@click.option(
    "--to-current",
    "words",
    flag_value="current",
    multiple=True,
    help="Set offsets to where they are, which prints them.",
)
@click.option("--to-offset", type=Whole(min=0), help="Set offsets to this one.")
@click.option(
    "--shift-by",
    type=Whole(),
    metavar="N",
    help="Move offsets by this many records: forward, or back if negative.",
)
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Set offsets to the first record at or after this time: 2013-07-04T12:00:00Z.",
)
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="Set offsets to the first record that is not older than this: 15m, PT15M.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Set offsets to those in a file: what --json prints, or lines topic,partition,offset.",
)
@click.option("--share", is_flag=True, help="Make a share group, if there is no group of this name.")
@click.option(
    "--execute", is_flag=True, help="Set the offsets. Without this the command only shows what it would do."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done: the default.")
@bootstrap_option
@json_option
def reset_offsets(
    name: str,
    topics: tuple[str, ...],
    words: tuple[str, ...],
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    from_file: Path | None,
    share: bool,
    execute: bool,
    dry_run: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Set the committed offsets of a group, or the start offsets of a share group, while it has no members.

    \b
    odradek group reset-offsets billing --to-earliest --topic flights
    odradek group reset-offsets billing --by-duration 2h --execute
    odradek group reset-offsets billing --shift-by -100 --topic flights:0,1 --execute
    """
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run contradict each other", click.get_current_context())
    target = _target(words, to_offset, shift_by, to_datetime or by_duration, from_file)
    if to_datetime and by_duration:
        raise click.UsageError("say where to in one way only", click.get_current_context())
    with open_admin(bootstrap) as admin:
        known = idle_group(admin, name)
        is_share = known.type == SHARE if known is not None else share
        if share and not is_share:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"group {name!r} exists, and is no share group")
        committed = _start_offsets(known) if is_share else _committed(admin, name)
        partitions = _partitions(admin, topics, target, committed)
        ids = _topic_ids(admin, partitions)
        target.check_topics(ids)
        plan = {
            tp: target.offset_for(tp, facts)
            for tp, facts in _facts(admin, partitions, committed, target).items()
        }
        if execute and is_share:
            admin.alter_share_group_offsets(
                name, {tp: after for tp, after in plan.items() if after is not None}
            )
        elif execute:
            admin.alter_group_offsets(name, _tied(plan, ids))
    _show_plan(name, plan, committed, ids, execute, as_json)


def _target(
    words: tuple[str, ...],
    to_offset: int | None,
    shift_by: int | None,
    moment: str | None,
    from_file: Path | None,
) -> Target:
    given = [*words, *(choice for choice in (to_offset, shift_by, moment, from_file) if choice is not None)]
    if len(given) != 1:
        raise click.UsageError(
            "say where to in one way: --to-earliest, --to-latest, --to-current, --to-offset, --shift-by,"
            " --to-datetime, --by-duration or --from-file",
            click.get_current_context(),
        )
    if words:
        return Target(word=words[0])
    if moment is not None:
        now_ms = round(time.time() * 1000)
        return Target(timestamp_ms=parse_moment_or_duration(moment, now_ms=now_ms))
    if from_file is not None:
        with click.open_file(str(from_file), encoding="utf-8") as file:
            plan = parse_plan(file.read())
        return Target(by_partition=plan.offsets, topic_ids=plan.topic_ids)
    return Target(offset=to_offset, shift=shift_by)


def _start_offsets(group_description: GroupDescription | None) -> CommittedOffsets:
    """Returns the offsets from which a share group reads."""
    if group_description is None:
        return {}
    return {tp: OffsetAndMetadata(offset) for tp, offset in group_description.start_offsets.items()}


def _committed(admin: Admin, name: str) -> CommittedOffsets:
    try:
        return admin.list_group_offsets(name)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        raise


def _partitions(
    admin: Admin, topics: tuple[str, ...], target: Target, committed: CommittedOffsets
) -> list[TopicPartition]:
    if target.by_partition is not None:
        return sorted(target.by_partition)
    if not topics:
        if not committed:
            raise ConfigError("the group has no offsets: name topics with --topic")
        return sorted(committed)
    scopes = parse_scopes(topics)
    topic_descriptions = admin.describe_topics(scopes)
    chosen: list[TopicPartition] = []
    for topic, numbers in scopes.items():
        known = topic_descriptions[topic].topic_partitions
        wanted = known if numbers is None else tuple(TopicPartition(topic, number) for number in numbers)
        for tp in wanted:
            if tp not in known:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} has no partition {tp.partition}"
                )
        chosen += wanted
    return sorted(chosen)


def _topic_ids(admin: Admin, partitions: list[TopicPartition]) -> dict[str, UUID]:
    """Returns the ids of topics that exist: a topic that was made again is another one."""
    topics = sorted({tp.topic for tp in partitions})
    descriptions = admin.describe_topics(topics) if topics else {}
    ids = {name: topic.topic_id for name, topic in descriptions.items()}
    return {name: topic_id for name, topic_id in ids.items() if topic_id != ZERO_UUID}


def _tied(
    plan: dict[TopicPartition, int | None], ids: Mapping[str, UUID]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Returns the offsets to commit, each for the topic that it was chosen in."""
    return {
        tp: OffsetAndMetadata(offset, topic_id=ids.get(tp.topic, ZERO_UUID))
        for tp, offset in plan.items()
        if offset is not None
    }


def _facts(
    admin: Admin, partitions: list[TopicPartition], committed: CommittedOffsets, target: Target
) -> dict[TopicPartition, PartitionFacts]:
    if not partitions:
        return {}
    begins = admin.list_offsets(dict.fromkeys(partitions, client.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(partitions, client.LATEST))
    moments = (
        admin.list_offsets(dict.fromkeys(partitions, target.timestamp_ms))
        if target.timestamp_ms is not None
        else {}
    )
    facts = {}
    for tp in partitions:
        known = committed.get(tp)
        at_time = moments[tp].offset if tp in moments else None
        facts[tp] = PartitionFacts(
            begin=begins[tp].offset,
            end=ends[tp].offset,
            committed=known.offset if known is not None else None,
            at_time=ends[tp].offset if at_time is not None and at_time < 0 else at_time,
        )
    return facts


def _show_plan(
    name: str,
    plan: dict[TopicPartition, int | None],
    committed: CommittedOffsets,
    ids: Mapping[str, UUID],
    executed: bool,
    as_json: bool,
) -> None:
    rows = []
    for tp, after in plan.items():
        known = committed.get(tp)
        rows.append((tp.topic, tp.partition, known.offset if known is not None else None, after))
    columns = ("topic", "partition", "before", "after")
    if as_json:
        offsets = [
            dict(zip(columns, row, strict=True), topic_id=str(ids[row[0]]) if row[0] in ids else None)
            for row in rows
        ]
        print_json({"group": name, "executed": executed, "offsets": offsets})
    else:
        print_table(columns, rows)
    if not executed:
        remark("nothing was changed: add --execute to do it")


@group.command()
@groups_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete groups without members, and the offsets that they have committed."""
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {', '.join(names)} and their offsets?", abort=True)
    with open_admin(bootstrap) as admin:
        admin.delete_groups(names)
    remark(f"deleted {', '.join(names)}")
