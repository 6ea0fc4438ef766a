"""`odradek topic`: create, list, describe, alter, delete."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from odradek import client
from odradek.cli.access import open_admin
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, complete_topics, json_option, pairs
from odradek.cli.output import confirm, print_json, print_table, remark, say, say_lines, warn
from odradek.config.topic import ineffective
from odradek.model.aliases import Json
from odradek.model.ids import TopicPartition
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.admin import types
    from odradek.client.admin.types import TopicDescription
    from odradek.model import errors
else:
    types = lazy("odradek.client.admin.types")
    errors = lazy("odradek.model.errors")

config_option = click.option(
    "--config", "-c", "configs", metavar="KEY=VALUE", multiple=True, help="A topic setting; may be repeated."
)
name_argument = click.argument("name", shell_complete=complete_topics)
names_argument = click.argument(
    "names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_topics
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    "-p",
    type=Whole(min=1, bits=31),
    default=None,
    help="The number of partitions; by default num.partitions.",
)
@click.option(
    "--replication-factor",
    "-r",
    type=Whole(min=1, bits=15),
    default=None,
    help="The number of replicas of each partition; by default default.replication.factor.",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Leave a topic of this name alone.")
@bootstrap_option
@json_option
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create a topic."""

    settings = pairs(configs, "--config")
    wanted = client.NewTopic(name, partitions or -1, replication_factor or -1, configs=settings)
    with open_admin(bootstrap) as admin:
        try:
            created = admin.create_topics([wanted])[name]
        except errors.KafkaError as error:
            if not if_not_exists or error.code is not errors.ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            remark(f"topic {name} exists already")
            return
    for warning in ineffective(settings):
        warn(warning)
    answers = {
        "topic": name,
        "id": str(created.topic_id),
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
    }
    if as_json:
        print_json(answers)
    else:
        say(
            f"created {name} with {_count(created.partitions, 'partition')}, "
            f"{_count(created.replication_factor, 'replica')} each"
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@topic.command("list")
@click.option("--internal", is_flag=True, help="List Kafka's internal topics, too.")
@bootstrap_option
@json_option
def list_(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List topics."""
    with open_admin(bootstrap) as admin:
        names = admin.list_topics(internal=internal)
    if as_json:
        print_json(names)
    elif names:
        say_lines(names)


@topic.command()
@names_argument
@bootstrap_option
@json_option
def describe(names: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Show partitions, where they are, what they hold, and the settings that are not at their defaults."""
    with open_admin(bootstrap) as admin:
        topics = admin.describe_topics(names)
        answers = [_described(admin, topics[name]) for name in dict.fromkeys(names)]
    if as_json:
        print_json(answers)
        return
    for number, described in enumerate(answers):
        if number:
            say()
        _print_described(described)


def _described(admin: Admin, topic_description: TopicDescription) -> dict[str, Json]:
    resource = client.ConfigResource.topic(topic_description.name)
    entries = admin.describe_configs([resource])[resource]
    wanted = [
        TopicPartition(topic_description.name, partition.partition)
        for partition in topic_description.partitions
        if partition.leader >= 0
    ]
    begins = admin.list_offsets(dict.fromkeys(wanted, client.EARLIEST)) if wanted else {}
    ends = admin.list_offsets(dict.fromkeys(wanted, client.LATEST)) if wanted else {}
    return {
        "topic": topic_description.name,
        "id": str(topic_description.topic_id),
        "internal": topic_description.internal,
        "configs": {
            name: entry.value
            for name, entry in sorted(entries.items())
            if entry.source is types.ConfigSource.TOPIC
        },
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "first_offset": begins[at].offset if at in begins else None,
                "end_offset": ends[at].offset if at in ends else None,
            }
            for partition, at in zip(
                topic_description.partitions, topic_description.topic_partitions, strict=True
            )
        ],
    }


def _print_described(described: dict[str, Any]) -> None:
    settings = " ".join(f"{key}={value}" for key, value in described["configs"].items())
    say(f"{described['topic']}  {described['id']}" + (f"  {settings}" if settings else ""))
    rows = []
    for partition in described["partitions"]:
        known = partition["end_offset"] is not None
        held = partition["end_offset"] - partition["first_offset"] if known else None
        rows.append(
            (
                partition["partition"],
                partition["leader"],
                partition["replicas"],
                partition["isr"],
                partition["first_offset"],
                partition["end_offset"],
                held,
            )
        )
    print_table(["partition", "leader", "replicas", "isr", "first", "end", "offsets"], rows)


@topic.command()
@name_argument
@click.option(
    "--partitions", "-p", type=Whole(min=1, bits=31), help="Raise the number of partitions to this."
)
@config_option
@click.option(
    "--unset", "unset_keys", metavar="KEY", multiple=True, help="A setting to take back to its default."
)
@bootstrap_option
def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], unset_keys: tuple[str, ...], bootstrap: str
) -> None:
    """Add partitions to a topic, or change its settings."""
    wanted: dict[str, str | None] = {**dict.fromkeys(unset_keys), **pairs(configs, "--config")}
    if partitions is None and not wanted:
        raise click.UsageError(
            "nothing to alter: give --partitions, --config or --unset", click.get_current_context()
        )
    with open_admin(bootstrap) as admin:
        if partitions is not None:
            admin.create_partitions({name: partitions})
            remark(f"{name} has {_count(partitions, 'partition')}")
        if wanted:
            admin.alter_configs({client.ConfigResource.topic(name): wanted})
            remark(f"changed settings of {name}: {', '.join(wanted)}")
    for warning in ineffective({key: value for key, value in wanted.items() if value is not None}):
        warn(warning)


@topic.command()
@names_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete topics and all that they hold."""
    if not yes and sys.stdin.isatty():
        confirm(f"Delete {', '.join(names)} and all records?", abort=True)
    with open_admin(bootstrap) as admin:
        admin.delete_topics(names)
    remark(f"deleted {', '.join(names)}")
