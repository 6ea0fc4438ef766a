"""The cluster: moves under way, plans of rebalances and drains, elections, and what happened while the console watched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from odradek.client.admin.reassignments import ReassignmentDescription
from odradek.client.network.errors import explain
from odradek.cluster.balance import BalancePlan
from odradek.console.model.moving import MoveProgress, moves_that_wait, parse_plan_text, plan_text, read_plan
from odradek.console.model.snapshot import ModelSnapshot
from odradek.console.pages.offers import offers_of, reading_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.model.ids import TopicPartition
from odradek.model.java_numbers import is_digits

CALL_S: Final = 20.0
PROGRESS_ROWS: Final = 100
PLAN_ROWS: Final = 200
WAITING_EXAMPLES: Final = 5
EVENT_ROWS: Final = 100
ELECTED_MAX: Final = 10_000
ELECTED_ROWS: Final = 100
_RATE_MAX: Final = 2**31 - 1


async def show(visit: Visit) -> Response:
    """Shows moves, what may be done, and the time line."""
    await visit.wait_until_read()
    nothing: tuple[Mapping[TopicPartition, ReassignmentDescription], list[MoveProgress]] = ({}, [])
    (moves, progress), problem = await reading_of(visit, visit.model.moves, nothing)
    line = visit.model.time_line
    events = line.events()
    return visit.render(
        "cluster.html",
        active="cluster",
        offers=await offers_of(visit),
        run=visit.console.moves.last,
        under_way=len(moves),
        progress=progress[:PROGRESS_ROWS],
        progress_left_out=max(0, len(progress) - PROGRESS_ROWS),
        problem=problem,
        not_preferred=sum(topic.not_preferred for topic in visit.snapshot.topics.values()),
        events=[
            (event, max(0, (visit.console.clock.wall_ms() - event.at_ms) // 1000))
            for event in events[:EVENT_ROWS]
        ],
        events_left_out=max(0, len(events) - EVENT_ROWS) + line.dropped,
        watched_s=None
        if line.since_ms < 0
        else max(0, (visit.console.clock.wall_ms() - line.since_ms) / 1000),
    )


async def show_plan(visit: Visit) -> Response:
    """Shows what a rebalance would move, or with `drain` what empties a broker. Nothing moves."""
    drained = _broker(visit, visit.query.get("drain", ""))
    try:
        plan = await visit.run(read_plan(visit.model.admin, drained))
    except OdradekError as error:
        return await _plan_page(visit, drained, None, explain(error), 400)
    return await _plan_page(visit, drained, plan)


async def carry_out(visit: Visit) -> Response:
    """Begins exactly the moves that were shown."""
    drained = _broker(visit, visit.form.get("drain", ""))
    try:
        throttle = _rate(visit, visit.form.get("throttle", "").strip())
        moves = parse_plan_text(visit.form.get("plan", ""))
        if not moves:
            raise KafkaError(ErrorCode.INVALID_REQUEST, visit.catalogue.text("cluster.nothing_to_move"))
        run = visit.console.moves.begin(visit.model.settings, visit.login_key, moves, throttle)
        await visit.run(run)
    except OdradekError as error:
        return await _plan_page(visit, drained, None, explain(error), 400)
    visit.model.moves.forget()
    return visit.redirect("/cluster", "moves_begun")


async def _plan_page(
    visit: Visit, drained: list[int], plan: BalancePlan | None, line: str = "", status: int = 200
) -> Response:
    waiting = [] if plan is None else moves_that_wait(visit.snapshot, plan.moves)
    return visit.render(
        "cluster_plan.html",
        status,
        waiting=len(waiting),
        waiting_examples=", ".join(map(str, waiting[:WAITING_EXAMPLES]))
        + ", …" * (len(waiting) > WAITING_EXAMPLES),
        active="cluster",
        drained=drained[0] if drained else None,
        plan=plan,
        brokers=[] if plan is None else sorted({*plan.replicas_before, *plan.replicas_after}),
        rows=[] if plan is None else plan.moves[:PLAN_ROWS],
        left_out=0 if plan is None else max(0, len(plan.moves) - PLAN_ROWS),
        text="" if plan is None else plan_text(plan.moves),
        line=line,
        offers=await offers_of(visit),
    )


def _broker(visit: Visit, text: str) -> list[int]:
    """Returns the broker to empty, if the form names one."""
    if not text:
        return []
    if not is_digits(text) or len(text) > 10:
        raise KafkaError(ErrorCode.INVALID_REQUEST, visit.catalogue.text("cluster.no_broker"))
    return [int(text)]


def _rate(visit: Visit, text: str) -> int | None:
    """Returns bytes a second of a number of MiB; None for no limit."""
    if not text:
        return None
    if not is_digits(text) or len(text) > 9 or not 0 < int(text) << 20 <= _RATE_MAX:
        raise ConfigError(visit.catalogue.text("cluster.no_rate"))
    return int(text) << 20


async def show_cancel(visit: Visit) -> Response:
    return await _cancel_page(visit)


async def cancel(visit: Visit) -> Response:
    """Begins no more moves, and takes back those that are under way: replicas stay where they were."""
    visit.console.moves.stop()
    try:
        moves = await visit.run(visit.model.admin.list_reassignments(timeout_s=CALL_S))
        if moves:
            await visit.run(visit.model.admin.reassign_partitions(dict.fromkeys(moves), timeout_s=CALL_S))
    except KafkaError as error:
        if error.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # else it ended meanwhile
            return await _cancel_page(visit, explain(error), 400)
    visit.model.moves.forget()
    return visit.redirect("/cluster", "moves_cancelled")


async def _cancel_page(visit: Visit, line: str = "", status: int = 200) -> Response:
    moves, progress = await visit.run(visit.model.moves.get())
    return visit.render(
        "cluster_cancel.html",
        status,
        active="cluster",
        run=visit.console.moves.last,
        under_way=len(moves),
        progress=progress[:PROGRESS_ROWS],
        progress_left_out=max(0, len(progress) - PROGRESS_ROWS),
        line=line,
        offers=await offers_of(visit),
    )


async def stop(visit: Visit) -> Response:
    """Begins no more moves; those under way go on."""
    visit.console.moves.stop()
    return visit.redirect("/cluster", "moves_stopped")


async def show_elect(visit: Visit) -> Response:
    return await _elect_page(visit)


async def elect(visit: Visit) -> Response:
    """Gives leadership back to preferred replicas."""
    wanted = _not_preferred(visit.snapshot)[:ELECTED_MAX]
    try:
        if wanted:
            names = [tp for tp, _, _ in wanted]
            await visit.run(visit.model.admin.elect_leaders(names, timeout_s=CALL_S))
    except OdradekError as error:
        return await _elect_page(visit, explain(error), 400)
    await visit.run(visit.model.refresh_now("topics"))
    return visit.redirect("/cluster", "leaders_elected")


async def _elect_page(visit: Visit, line: str = "", status: int = 200) -> Response:
    await visit.wait_until_read()
    wanted = _not_preferred(visit.snapshot)
    return visit.render(
        "cluster_elect.html",
        status,
        active="cluster",
        count=len(wanted),
        most=ELECTED_MAX,
        rows=wanted[:ELECTED_ROWS],
        line=line,
        offers=await offers_of(visit),
    )


def _not_preferred(snapshot: ModelSnapshot) -> list[tuple[TopicPartition, int, int]]:
    """Returns partitions that another broker leads than their first replica, with both, if that one lives and is in sync."""
    alive = {broker.broker_id for broker in snapshot.brokers if broker.is_alive}
    return [
        (TopicPartition(name, row.partition), row.leader, row.replicas[0])
        for name, topic in snapshot.topics.items()
        if topic.not_preferred
        for row in snapshot.partitions.of(topic)
        if row.leader >= 0 and row.replicas and row.leader != row.replicas[0]
        if row.replicas[0] in alive and row.replicas[0] in row.isr
    ]


PAGES: Final = (
    ConsolePage(path="/cluster", show=show),
    ConsolePage(path="/cluster/plan", show=show_plan, act=carry_out),
    ConsolePage(path="/cluster/cancel", show=show_cancel, act=cancel),
    ConsolePage(path="/cluster/stop", act=stop),
    ConsolePage(path="/cluster/elect", show=show_elect, act=elect),
)
