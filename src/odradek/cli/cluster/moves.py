"""`odradek cluster plan`, `rebalance`, `drain`: what would move and what it costs, and then the moves, watched to their end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek import client
from odradek.cli.cluster.state import ClusterState, describe
from odradek.cli.output import RefreshingTable, bytes_text, print_json, print_table, say
from odradek.cluster.balance import BalancePlan, Move, plan
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from odradek.client import Admin

_LOOK_SECONDS: Final = 1.0
_AT_ONCE: Final = 50
"""Partitions that move at the same time: what is begun can be cancelled, and what is not begun costs nothing."""
_ROWS_MAX: Final = 40
_THROTTLES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def make_plan(state: ClusterState, drained: Sequence[int], *, spread: bool) -> BalancePlan:
    """A KafkaError says why it cannot be made; an unknown broker is one that no one has heard of."""
    for broker in drained:
        if broker not in state.known_brokers:
            known = ", ".join(map(str, state.known_brokers))
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker}; there are {known}"
            )
    return plan(state.image, state.sizes, drained=[BrokerId(broker) for broker in drained], spread=spread)


def plan_as_json(made: BalancePlan) -> dict[str, Any]:
    return {
        "moves": [
            {
                "topic": move.name.topic,
                "partition": move.name.partition,
                "before": list(move.before),
                "after": list(move.after),
                "copied_bytes": move.copied_bytes,
            }
            for move in made.moves
        ],
        "copied_bytes": made.copied_bytes,
        "replicas_before": _plain(made.replicas_before),
        "replicas_after": _plain(made.replicas_after),
        "preferred_before": _plain(made.preferred_before),
        "preferred_after": _plain(made.preferred_after),
    }


def _plain(counts: Mapping[BrokerId, int]) -> dict[str, int]:
    return {str(broker): count for broker, count in sorted(counts.items())}


def show_plan(made: BalancePlan, *, as_json: bool) -> None:
    """Prints the moves, the bytes to copy for them, and what each broker has before and after."""
    if as_json:
        print_json(plan_as_json(made))
        return
    if not made.moves:
        say("nothing has to move")
        return
    rows = [
        [str(move.name), list(move.before), list(move.after), bytes_text(move.copied_bytes)]
        for move in made.moves[:_ROWS_MAX]
    ]
    print_table(["partition", "replicas now", "then", "copied"], rows)
    if len(made.moves) > _ROWS_MAX:
        say(f"... and {len(made.moves) - _ROWS_MAX} more (--json shows all)")
    brokers = sorted({*made.replicas_before, *made.replicas_after})
    print_table(
        ["broker", "replicas now", "then", "preferred leader of", "then "],
        [
            [
                broker,
                made.replicas_before.get(broker, 0),
                made.replicas_after.get(broker, 0),
                made.preferred_before.get(broker, 0),
                made.preferred_after.get(broker, 0),
            ]
            for broker in brokers
        ],
    )
    say(f"{len(made.moves)} partition(s) change, {bytes_text(made.copied_bytes)} are copied between brokers")


def carry_out(admin: Admin, made: BalancePlan, *, throttle: int | None) -> None:
    """Begin the moves, a few at a time, and return when the last has ended. Interrupted, those under way go on; the others
    were not begun.
    """
    _throttle(admin, made.moves, throttle)
    try:
        left = list(made.moves)
        with RefreshingTable(["partition", "to", "copied", "of"]) as shown:
            while True:
                state = describe(admin)
                if left and len(state.moves) < _AT_ONCE:
                    begun, left = left[: _AT_ONCE - len(state.moves)], left[_AT_ONCE - len(state.moves) :]
                    admin.reassign_partitions({move.name: move.after for move in begun})
                    continue
                shown.show(_progress(state), f"{len(state.moves)} under way, {len(left)} to begin")
                if not state.moves and not left:
                    break
                time.sleep(_LOOK_SECONDS)
    finally:
        if throttle is not None:
            _throttle(admin, made.moves, None)
    _elect(admin, made)


def _progress(state: ClusterState) -> list[list[object]]:
    return [
        [
            str(name),
            broker,
            bytes_text(state.copied.get((name, broker), 0)),
            bytes_text(state.sizes.get(name, 0)),
        ]
        for name, move in sorted(state.moves.items())
        for broker in move.adding
    ]


def _throttle(admin: Admin, moves: Sequence[Move], rate: int | None) -> None:
    """Kafka's way (KIP-73): a rate for the brokers, and which replicas it is for; None takes both away."""
    brokers = {broker for move in moves for broker in (*move.before, *move.after)}
    topics = {move.name.topic for move in moves}
    if not moves:
        return
    for broker in brokers:
        value = None if rate is None else str(rate)
        admin.alter_configs({client.ConfigResource.broker(int(broker)): dict.fromkeys(_THROTTLES, value)})
    for topic in topics:
        value = None if rate is None else "*"
        admin.alter_configs({client.ConfigResource.topic(topic): dict.fromkeys(_THROTTLED, value)})


def _elect(admin: Admin, made: BalancePlan) -> None:
    """Elects preferred leaders: where only the order of replicas changed, the new one has no election otherwise."""
    names: list[TopicPartition] = [move.name for move in made.moves]
    if names:
        admin.elect_leaders(names)
