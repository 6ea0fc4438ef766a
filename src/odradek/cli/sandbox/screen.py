"""The screens of the sandbox: brokers, partitions and groups as tables that a person can read at a glance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.cli.sandbox.playground import Playground
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.model.safe_text import safe_line

if TYPE_CHECKING:
    from rich import box, console, text
    from rich import table as rich_table
else:
    box = lazy("rich.box")
    console = lazy("rich.console")
    rich_table = lazy("rich.table")
    text = lazy("rich.text")


def broker_rows(playground: Playground) -> list[list[object]]:
    """[broker, address, state, what it leads, replicas out of sync]."""
    leads: dict[int, int] = {}
    lacks: dict[int, int] = {}
    try:
        topics = playground.admin.describe_topics(playground.admin.list_topics(internal=True))
        for topic in topics.values():
            for partition in topic.partitions:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
                for replica in partition.replicas:
                    if replica not in partition.isr:
                        lacks[replica] = lacks.get(replica, 0) + 1
        controller = playground.controller()
    except OdradekError:
        controller = -1
    rows: list[list[object]] = []
    for broker in playground.fleet.brokers:
        state = "paused" if broker.is_paused else "alive" if broker.is_alive else "dead"
        name = f"{broker.node_id}*" if broker.node_id == controller else str(broker.node_id)
        rows.append([name, broker.address, state, leads.get(broker.node_id, 0), lacks.get(broker.node_id, 0)])
    return rows


def partition_rows(playground: Playground, topics: Iterable[str]) -> list[list[object]]:
    """[topic, partition, leader, in sync, records]; nothing for a topic that no one can tell of now."""
    rows: list[list[object]] = []
    for topic in topics:
        try:
            partitions = playground.partitions(topic)
        except OdradekError:
            continue
        try:
            ends = playground.ends(topic)
        except OdradekError:
            ends = {}
        for partition in partitions:
            leader = "none" if partition.leader < 0 else f"broker {partition.leader}"
            isr = " ".join(
                f"[{replica}]" if replica == partition.leader else str(replica)
                for replica in sorted(partition.isr)
            )
            out = " ".join(f"({replica})" for replica in partition.replicas if replica not in partition.isr)
            rows.append(
                [topic, partition.partition, leader, f"{isr} {out}".strip(), ends.get(partition.partition)]
            )
    return rows


def member_rows(playground: Playground) -> list[list[object]]:
    """[group, consumer, partitions, records read]."""
    return [
        [
            member.group,
            member.name,
            ", ".join(map(str, member.partitions)) or "none: idle",
            len(member.seen),
        ]
        for member in playground.members
    ]


def picture(playground: Playground, topics: Iterable[str]) -> console.Group:
    """Returns the whole screen, for `rich` to print."""

    parts: list[console.RenderableType] = [
        _table(["broker", "address", "state", "leads", "lags in"], broker_rows(playground)),
        _table(["topic", "partition", "leader", "in sync", "records"], partition_rows(playground, topics)),
    ]
    members = member_rows(playground)
    if members:
        parts.append(_table(["group", "consumer", "partitions", "read"], members))
    if playground.load is not None:
        load = playground.load
        parts.append(
            text.Text(
                f"load: {load.sent:,} sent, {len(load.acknowledged):,} acknowledged, {load.failed} failed"
            )
        )
    return console.Group(*parts)


def _table(columns: list[str], rows: list[list[object]]) -> rich_table.Table:
    table = rich_table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column)
    colours = {"alive": "green", "dead": "red", "paused": "yellow", "none": "red", "none: idle": "yellow"}
    for row in rows:
        cells = [
            "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else safe_line(str(cell))
            for cell in row
        ]
        table.add_row(*(text.Text(cell, style=colours.get(cell, "")) for cell in cells))
    return table
