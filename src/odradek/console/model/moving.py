"""Rebalances and drains: planned from fresh readings, begun a few at a time, watched to their end.

A run belongs to the console and not to a page: it continues without a viewer, also after its user has logged out. If the
console ends, what was begun continues in the brokers, and what was not begun does not move. Everything here runs on the
background loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.client.admin.moves import cluster_image, next_moves, plan_for, throttle_changes
from odradek.client.admin.reassignments import ReassignmentDescription
from odradek.client.admin.types import LogDirDescription
from odradek.client.aio import AsyncAdmin
from odradek.client.network.errors import PartialFailureError, explain
from odradek.cluster.balance import BalancePlan, Move
from odradek.console.model.snapshot import UNKNOWN, ModelSnapshot
from odradek.model.aliases import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.runtime.ports import Clock
from odradek.telemetry import events

_log = events.get("console")

CALL_S: Final = 15.0
LARGE_CALL_S: Final = 45.0
LOOK_S: Final = 1.5
PROBLEMS_MAX: Final = 20
ATTEMPTS_MAX: Final = 40
"""The number of failed looks in a row after which a run gives up: brokers may restart meanwhile."""
_OF_ONE_PARTITION: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)
"""Errors of a partition that cannot be moved; others concern the whole run."""
MOVES_MAX: Final = 100_000
"""The number of moves of a plan that a run carries out."""


async def read_plan(admin: AsyncAdmin, drained: Sequence[int]) -> BalancePlan:
    """Reads the cluster, and returns the plan of a rebalance, or of a drain of these brokers. KafkaError if there is none."""
    cluster, topics, directories = await asyncio.gather(
        admin.describe_cluster(timeout_s=CALL_S),
        admin.describe_topics(timeout_s=LARGE_CALL_S),
        admin.describe_log_dirs(timeout_s=LARGE_CALL_S),
    )
    sizes = _sizes(directories)
    image = cluster_image(cluster, topics.values())
    return await asyncio.to_thread(plan_for, image, sizes, drained, spread=not drained)


def moves_that_wait(snapshot: ModelSnapshot, moves: Iterable[Move]) -> list[TopicPartition]:
    """Returns the partitions of these moves that no broker leads: nothing of them can be copied, so they do not end."""
    leaderless = {
        TopicPartition(topic.name, row.partition)
        for topic in snapshot.topics.values()
        if topic.offline
        for row in snapshot.partitions.of(topic)
        if row.is_offline
    }
    return [move.name for move in moves if move.name in leaderless]


def _sizes(directories: Mapping[int, Sequence[LogDirDescription]]) -> dict[TopicPartition, int]:
    """Returns the bytes of the largest replica of each partition."""
    sizes: dict[TopicPartition, int] = {}
    for described in directories.values():
        for directory in described:
            for tp, replica in directory.replicas.items():
                sizes[tp] = max(sizes.get(tp, 0), replica.size_bytes)
    return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveProgress:
    """One partition that moves to one broker."""

    tp: TopicPartition
    broker: int
    copied_bytes: int
    total_bytes: int

    @property
    def per_mille(self) -> int:
        """The copied part, for a picture. A replica that is still written to is never shown as more than whole."""
        if self.total_bytes <= 0 or self.copied_bytes < 0:
            return 0
        return min(1000, self.copied_bytes * 1000 // self.total_bytes)


async def read_progress(
    admin: AsyncAdmin,
) -> tuple[Mapping[TopicPartition, ReassignmentDescription], list[MoveProgress]]:
    """Returns the moves under way, and how far each is. Sizes are UNKNOWN where directories are not shown.

    Only registered brokers are asked: a dead one, whose replicas are moved away, would be waited for until the limit.
    """
    moves = await admin.list_reassignments(timeout_s=CALL_S)
    if not moves:
        return {}, []
    registered = {broker.broker_id for broker in (await admin.describe_cluster(timeout_s=CALL_S)).brokers}
    brokers = sorted(registered & {broker for move in moves.values() for broker in move.replicas})
    try:
        directories: Mapping[int, Sequence[LogDirDescription]] = await admin.describe_log_dirs(
            brokers, timeout_s=LARGE_CALL_S
        )
    except PartialFailureError as error:
        directories = error.results
    except KafkaError as error:
        _log.info("console_sizes_of_moves_unread", reason=explain(error))
        directories = {}
    sizes = _sizes(directories)
    copied = {
        (tp, broker): replica.size_bytes
        for broker, described in directories.items()
        for directory in described
        for tp, replica in directory.replicas.items()
        if tp in moves
    }
    return moves, [
        MoveProgress(
            tp=tp,
            broker=broker,
            copied_bytes=copied.get((tp, broker), UNKNOWN),
            total_bytes=sizes.get(tp, UNKNOWN),
        )
        for tp, move in sorted(moves.items())
        for broker in move.adding or (UNKNOWN,)
    ]


@dataclass(slots=True, kw_only=True)
class MoveRun:
    """One rebalance or drain while it is carried out, and afterwards its outcome."""

    login_key: str = field(repr=False)
    moves: tuple[Move, ...]
    throttle: int | None
    began_ms: int
    left: list[Move] = field(default_factory=list)
    """The moves that were not begun."""
    refused: set[TopicPartition] = field(default_factory=set)
    """The partitions whose moves the controller refused."""
    under_way: int = 0
    state: str = "running"
    """`running`, `stopping` (begins no more), `done`, `stopped`, or `failed`."""
    problems: list[str] = field(default_factory=list)
    """Why some of it could not be done; at most `PROBLEMS_MAX` lines."""

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "stopped", "failed")

    @property
    def ended(self) -> int:
        """The number of moves that have ended."""
        return max(0, len(self.moves) - len(self.left) - self.under_way)

    def note(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)


class MoveRuns:
    """Carries out one plan at a time, for all users: two at once would move the same replicas to and fro."""

    def __init__(self, bootstrap: str, clock: Clock) -> None:
        self._bootstrap = bootstrap
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._admin: AsyncAdmin | None = None
        self.last: MoveRun | None = None

    async def begin(
        self, settings: ClientSettings, login_key: str, moves: Sequence[Move], throttle: int | None
    ) -> MoveRun:
        """Begins to carry out these moves. KafkaError if moves are under way already, or a run is not over."""
        if self.last is not None and not self.last.is_over:
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS,
                "a rebalance or drain is being carried out: wait until it has ended, or stop it",
            )
        run = MoveRun(
            login_key=login_key,
            moves=tuple(moves),
            throttle=throttle,
            began_ms=self._clock.wall_ms(),
            left=list(moves),
        )
        before, self.last = self.last, run  # before the first await: of two callers, one is refused
        admin = AsyncAdmin(self._bootstrap, **settings)
        try:
            under_way = await admin.list_reassignments(timeout_s=CALL_S)
            if under_way:
                raise KafkaError(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS,
                    f"{len(under_way)} partitions are being moved already: wait until that has ended, or cancel it",
                )
            await self._throttle(admin, run, throttle)
        except BaseException:
            self.last = before
            await admin.close()
            raise
        self._admin = admin
        self._task = asyncio.get_running_loop().create_task(
            self._carry_out(run), name="odradek-console-moves"
        )
        return run

    async def renew(self, settings: ClientSettings, login_key: str) -> None:
        """Continues with a fresh token of the same login: the one before ends."""
        run, admin = self.last, self._admin
        if run is None or run.is_over or run.login_key != login_key or admin is None:
            return
        self._admin = AsyncAdmin(self._bootstrap, **settings)
        await admin.close()

    def stop(self) -> None:
        """Begins no more moves; those under way go on. May be called from any thread."""
        if self.last is not None and self.last.state == "running":
            self.last.state = "stopping"

    async def close(self) -> None:
        """Begins no more moves, and takes the throttle away if the brokers answer. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _carry_out(self, run: MoveRun) -> None:
        """Carries out the run, which ends when its throttle is removed, too: until then it counts as running."""
        outcome = "failed"
        try:
            await self._begin_all(run)
            outcome = "stopped" if run.left else "done"
        except asyncio.CancelledError:
            outcome = "stopped"
            raise
        except OdradekError as error:
            run.note(explain(error))
        except Exception as error:  # noqa: BLE001 - the root of a task: logged, and shown on the page
            _log.exception("console_moves_failed")
            run.note(f"unexpected {type(error).__name__}")
        finally:
            try:
                await self._finish(run, elects=outcome == "done")
            finally:
                run.state = outcome

    async def _begin_all(self, run: MoveRun) -> None:
        failures = 0
        while True:
            try:
                assert self._admin is not None
                under_way = await self._admin.list_reassignments(timeout_s=CALL_S)
                run.under_way = len(under_way)
                begun, left = (
                    next_moves(run.left, len(under_way)) if run.state == "running" else ([], run.left)
                )
                if begun:
                    await self._begin_some(run, begun)
                    run.left = left
                elif not under_way:
                    return
            except OdradekError as error:
                failures += 1
                if failures >= ATTEMPTS_MAX or not getattr(error, "retriable", False):
                    raise
                run.note(explain(error))
            else:
                failures = 0
            await asyncio.sleep(LOOK_S)

    async def _begin_some(self, run: MoveRun, begun: Sequence[Move]) -> None:
        assert self._admin is not None
        wanted = {move.name: [int(broker) for broker in move.after] for move in begun}
        try:
            await self._admin.reassign_partitions(wanted, timeout_s=CALL_S)
        except PartialFailureError as error:  # such as a topic that was deleted meanwhile: the others go on
            for name, reason in error.errors.items():
                run.refused.add(name)
                run.note(explain(reason))
        except KafkaError as error:
            if len(wanted) > 1 or error.code not in _OF_ONE_PARTITION:
                raise
            run.refused |= wanted.keys()
            run.note(explain(error))

    async def _finish(self, run: MoveRun, *, elects: bool) -> None:
        """Takes the throttle away, elects preferred leaders where the order of replicas changed, and closes the client."""
        admin, self._admin = self._admin, None
        if admin is None:
            return
        try:
            if run.throttle is not None:
                await self._throttle(admin, run, None)
            tried = (move.name for move in run.moves[: len(run.moves) - len(run.left)])
            begun = [name for name in tried if name not in run.refused]
            if elects and begun:
                await admin.elect_leaders(begun, timeout_s=LARGE_CALL_S)
        except OdradekError as error:
            run.note(explain(error))
        finally:
            await admin.close()

    async def _throttle(self, admin: AsyncAdmin, run: MoveRun, rate: int | None) -> None:
        cluster = await admin.describe_cluster(timeout_s=CALL_S)
        alive = {broker.broker_id for broker in cluster.brokers}
        changes = throttle_changes(run.moves, rate, alive)
        if rate is not None or run.throttle is not None:
            await admin.alter_configs(changes, timeout_s=LARGE_CALL_S)


PLAN_TEXT_MAX: Final = 8 << 20


def plan_text(moves: Sequence[Move]) -> str:
    """Returns moves as lines, so that a form carries out exactly what was shown: topic, partition, before, after, bytes."""
    return "\n".join(
        f"{move.name.topic} {move.name.partition} {_ids(move.before)} {_ids(move.after)} {move.copied_bytes}"
        for move in moves
    )


def parse_plan_text(text: str) -> list[Move]:
    """Reads the lines of `plan_text`. KafkaError for what is none of them."""
    lines = text.split("\n") if text else []
    try:
        if len(text) > PLAN_TEXT_MAX or len(lines) > MOVES_MAX:
            raise ValueError("too long")
        return [_move(line.strip()) for line in lines if line.strip()]
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "the plan of the form cannot be read: make it again"
        ) from None


def _move(line: str) -> Move:
    topic, partition, before, after, copied = line.split(" ")
    return Move(
        name=TopicPartition(topic, int(partition)),
        before=_parsed_ids(before),
        after=_parsed_ids(after),
        copied_bytes=int(copied),
    )


def _ids(brokers: Collection[int]) -> str:
    return ",".join(str(int(broker)) for broker in brokers)


def _parsed_ids(text: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(part)) for part in text.split(","))
