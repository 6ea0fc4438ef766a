"""`odradek cluster`: who belongs to it, and what they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from odradek.cli.access import open_admin
from odradek.cli.moments import time_text
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import bytes_text, confirm, print_json, print_table, say
from odradek.config.listening.listeners import format_address
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import is_digits
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.cli.cluster import moves as cluster_moves
    from odradek.cli.cluster import state as cluster_state
    from odradek.client.admin.types import BrokerDescription, LogDirDescription
else:
    cluster_moves = lazy("odradek.cli.cluster.moves")
    cluster_state = lazy("odradek.cli.cluster.state")


@click.group()
def cluster() -> None:
    """Look at the cluster, and move replicas between its brokers."""


@cluster.command()
@bootstrap_option
@json_option
def status(bootstrap: str, as_json: bool) -> None:
    """Show what each broker leads and holds, and which partitions are not as they should be."""
    with open_admin(bootstrap) as admin:
        state = cluster_state.describe(admin, all_must_answer=False)
    troubles = state.troubles()
    moves = {
        str(name): {"adding": list(move.adding), "removing": list(move.removing)}
        for name, move in state.moves.items()
    }
    if as_json:
        disks = [disk._asdict() for disk in state.disks]
        document = {"cluster": state.image.cluster_id, "brokers": state.rows(), "disks": disks, **troubles}
        print_json({**document, "moves": moves})
        return
    rows = [
        [*(row[key] for key in _STATUS[:-1]), None if row["bytes"] is None else bytes_text(int(row["bytes"]))]
        for row in state.rows()
    ]
    print_table([*_STATUS[:-1], "holds"], rows)
    partitions = state.partitions()
    say(f"{len(partitions)} partition(s) of {len(state.image.topics)} topic(s)")
    for key, words in _TROUBLES.items():
        if troubles[key]:
            say(f"{len(troubles[key])} {words}: {_some(troubles[key])}")
    say_silent(state.silent)
    for disk in state.disks:
        if disk.state != "ok":
            space = "" if disk.free_bytes < 0 else f", {disk.free_bytes} of {disk.total_bytes} bytes free"
            say(f"broker {disk.broker}: {disk.path} is {disk.state}{space}")
    if moves:
        say(f"{len(moves)} being moved: {_some(list(moves))}")


def say_silent(silent: Mapping[int, str]) -> None:
    for broker, reason in sorted(silent.items()):
        say(f"broker {broker} does not say what its disks hold: {reason}")


_STATUS = ["broker", "address", "rack", "state", "controller", "leads", "replicas", "out_of_sync", "bytes"]
_TROUBLES = {
    "leaderless": "without a leader",
    "under_replicated": "with replicas out of sync",
    "under_min_isr": "with fewer replicas in sync than min.insync.replicas",
    "not_preferred": "not led by their preferred replica",
}
_NAMES_MAX = 5


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_MAX
    return ", ".join(names[:_NAMES_MAX]) + (f" and {more} more" if more > 0 else "")


def _yes_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option("--yes", is_flag=True, help="Do not ask before anything moves.")(command)


def _throttle_option(command: Callable[..., None]) -> Callable[..., None]:
    return click.option(
        "--throttle",
        type=Whole(1, bits=31),
        metavar="BYTES",
        help="Copy at most this many bytes a second, by each broker, while it lasts.",
    )(command)


@cluster.command()
@bootstrap_option
@click.option(
    "--drain",
    "drained",
    type=Whole(bits=31),
    multiple=True,
    metavar="BROKER",
    help="Plan as if this broker must be emptied.",
)
@json_option
def plan(bootstrap: str, drained: tuple[int, ...], as_json: bool) -> None:
    """Show which replicas `rebalance` (or `drain`) would move, and how many bytes that copies. Nothing moves."""

    with open_admin(bootstrap) as admin:
        state = cluster_state.describe(admin)
    made = cluster_moves.make_plan(state, drained, spread=not drained)
    cluster_moves.show_plan(state, made, as_json=as_json)


@cluster.command()
@bootstrap_option
@_yes_option
@_throttle_option
def rebalance(bootstrap: str, yes: bool, throttle: int | None) -> None:
    """Even out replicas and leaders over brokers and racks: the plan is shown, then carried out if you agree."""
    _move(bootstrap, (), yes=yes, throttle=throttle)


@cluster.command()
@bootstrap_option
@click.argument("brokers", type=Whole(bits=31), nargs=-1, required=True)
@_yes_option
@_throttle_option
def drain(bootstrap: str, brokers: tuple[int, ...], yes: bool, throttle: int | None) -> None:
    """Move every replica away from BROKERS: the plan is shown, then carried out if you agree.

    New topics may still be placed there: set odradek.broker.cordoned=true on a broker that must stay empty.
    """
    _move(bootstrap, brokers, yes=yes, throttle=throttle)


def _move(bootstrap: str, drained: tuple[int, ...], *, yes: bool, throttle: int | None) -> None:
    with open_admin(bootstrap) as admin:
        state = cluster_state.describe(admin)
        if state.moves:
            raise click.UsageError(
                f"{len(state.moves)} partition(s) are being moved already: wait until that has ended"
            )
        made = cluster_moves.make_plan(state, drained, spread=not drained)
        cluster_moves.show_plan(state, made, as_json=False)
        if made.moves and (yes or confirm("Move them?")):
            cluster_moves.carry_out(admin, made, throttle=throttle)
            say("done")


@cluster.command()
@bootstrap_option
@click.argument("partitions", nargs=-1, required=True)
@click.option("--unclean", is_flag=True, help="Where no broker leads, let the best available replica lead.")
@click.option("--yes", is_flag=True, help="Do not ask before records are given up.")
def elect(bootstrap: str, partitions: tuple[str, ...], unclean: bool, yes: bool) -> None:
    """Let PARTITIONS (such as flights-0) be led by their preferred replicas.

    With --unclean, partitions without a leader get one although it may lack records that were acknowledged: those are lost for
    good. It is the last resort, for disks that do not come back.
    """
    names = [_partition(text) for text in partitions]
    if unclean and not yes:
        confirm("Records that the new leaders lack are lost for good. Go on?", abort=True)
    with open_admin(bootstrap) as admin:
        outcomes = admin.elect_leaders(names, unclean=unclean)
        for name in names:
            say(f"{name}: {'elected' if outcomes.get(name) else 'no election was needed'}")


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    if not topic or not is_digits(number):
        raise click.UsageError(
            f"{text!r:.80} is not a partition: write flights-0 for partition 0 of topic flights"
        )
    return TopicPartition(topic, int(number))


@cluster.command()
@bootstrap_option
@json_option
def quorum(bootstrap: str, as_json: bool) -> None:
    """Show the controller quorum: the leader, its term, and the lag of each voter and observer."""
    with open_admin(bootstrap) as admin:
        state = admin.describe_quorum()
    replicas = [("voter", voter) for voter in state.voters]
    replicas += [("observer", observer) for observer in state.observers]
    rows: list[dict[str, object]] = []
    table: list[list[object]] = []
    for role, replica in replicas:
        caught_up_ms = replica.last_caught_up_ms
        endpoints = [
            f"{endpoint.listener}://{format_address(endpoint.host, endpoint.port)}"
            for endpoint in state.nodes.get(replica.replica_id, ())
        ]
        row: dict[str, object] = {
            "node": replica.replica_id,
            "role": "leader" if replica.replica_id == state.leader_id else role,
            "log_end_offset": replica.log_end_offset,
            "lag": max(state.high_watermark - replica.log_end_offset, 0),
        }
        table.append(
            [
                *row.values(),
                None if caught_up_ms is None else time_text(caught_up_ms),
                ", ".join(endpoints) or None,
            ]
        )
        rows.append({**row, "caught_up_ms": caught_up_ms, "endpoints": endpoints})
    if as_json:
        head = {
            "leader": state.leader_id,
            "epoch": state.leader_epoch,
            "high_watermark": state.high_watermark,
        }
        print_json({**head, "replicas": rows})
        return
    say(f"leader {state.leader_id}, epoch {state.leader_epoch}, high watermark {state.high_watermark}")
    print_table(["node", "role", "log_end_offset", "lag", "caught_up", "endpoints"], table)


@cluster.command()
@bootstrap_option
@click.argument("broker", type=Whole(0, bits=31))
@click.option("--yes", is_flag=True, help="Do not ask before the broker is forgotten.")
@json_option
def unregister(bootstrap: str, broker: int, yes: bool, as_json: bool) -> None:
    """Let the cluster forget BROKER, which is down and will not come back.

    No new topic gets replicas on it. Those that it had stay assigned to it until they are reassigned.
    """
    if not yes:
        confirm(f"Forget broker {broker} for good?", abort=True)
    with open_admin(bootstrap) as admin:
        admin.unregister_broker(broker)
    if as_json:
        print_json({"unregistered": broker})
    else:
        say(f"broker {broker} is forgotten")


@cluster.command()
@bootstrap_option
@json_option
def describe(bootstrap: str, as_json: bool) -> None:
    """Show the cluster's id, its brokers, and what their data directories hold."""
    with open_admin(bootstrap) as admin:
        cluster_description = admin.describe_cluster()
        silent: dict[int, str] = {}
        directories = cluster_state.log_dirs_of_some(admin, silent)
    if as_json:
        brokers = [
            {
                **_as_json(broker, cluster_description.controller_id, directories),
                "silent": silent.get(broker.broker_id),
            }
            for broker in cluster_description.brokers
        ]
        print_json(
            {
                "cluster": cluster_description.cluster_id,
                "controller": cluster_description.controller_id,
                "brokers": brokers,
            }
        )
        return
    say(f"cluster {cluster_description.cluster_id}")
    rows: list[list[object]] = []
    for broker in cluster_description.brokers:
        address = format_address(broker.host, broker.port)
        own = [broker.broker_id, address, broker.rack, broker.broker_id == cluster_description.controller_id]
        held = directories.get(broker.broker_id, ())
        rows += [[*own, *_cells(directory)] for directory in held] or [[*own, *[None] * 5]]
    columns = ["broker", "address", "rack", "controller", "directory", "partitions", "holds", "free", "error"]
    print_table(columns, rows)
    say_silent(silent)


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
