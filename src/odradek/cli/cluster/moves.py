"""`odradek cluster plan`, `rebalance`, `drain`: what would move and what it costs, and then the moves, watched to their end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from odradek.cli.cluster.state import ClusterState, describe
from odradek.cli.output import RefreshingTable, bytes_text, print_json, print_table, say
from odradek.client.admin.moves import moves_without_leader, next_moves, plan_for, throttle_changes
from odradek.cluster.balance import BalancePlan, Move
from odradek.model.aliases import Json
from odradek.model.ids import BrokerId, TopicPartition

if TYPE_CHECKING:
    from odradek.client import Admin

_LOOK_SECONDS: Final = 1.0
_ROWS_MAX: Final = 40
_EXAMPLES_MAX: Final = 5


def make_plan(state: ClusterState, drained: Sequence[int], *, spread: bool) -> BalancePlan:
    """Returns the plan. Raises KafkaError where there is none, and for a broker that neither lives nor holds replicas."""
    return plan_for(state.image, state.sizes, drained, spread=spread)


def plan_as_json(made: BalancePlan) -> dict[str, Json]:
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


def show_plan(state: ClusterState, made: BalancePlan, *, as_json: bool) -> None:
    """Prints the moves, the bytes to copy for them, what each broker has before and after, and which moves cannot end."""
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
    if stranded := moves_without_leader(state.image, made.moves):
        more = ", ..." if len(stranded) > _EXAMPLES_MAX else ""
        say(
            f"{len(stranded)} of them have no leader ({', '.join(map(str, stranded[:_EXAMPLES_MAX]))}{more}): nothing can "
            "be copied, so their moves wait until a broker that has their records is back"
        )


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
                begun, left = next_moves(left, len(state.moves))
                if begun:
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
    if moves:
        alive = {broker.broker_id for broker in admin.describe_cluster().brokers}
        admin.alter_configs(throttle_changes(moves, rate, alive))


def _elect(admin: Admin, made: BalancePlan) -> None:
    """Elects preferred leaders: where only the order of replicas changed, the new one has no election otherwise."""
    names: list[TopicPartition] = [move.name for move in made.moves]
    if names:
        admin.elect_leaders(names)
