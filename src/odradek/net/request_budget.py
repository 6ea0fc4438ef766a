"""Limits the memory of large requests, in all connections together, and decides who receives next. A core: no I/O, no clock.

How it works. A frame that fits into a connection's receive buffer is not counted here: small requests
(heartbeats, fetches, metadata) never wait for large ones. A larger frame has a `Share`, from its first bytes
until its request is answered, or until the handler does not need the frame any more. A share takes from
pools:

- `common`: everyone.
- `ordinary`: frames up to `ORDINARY_BYTES`, and brokers' frames: room that unfinished larger frames cannot
  take.
- `proven`: ordinary frames of connections that have sent a large one whole before, and brokers' frames: room
  that newcomers cannot take.
- `brokers`: frames of other brokers.
- `largest`: as large as the largest frame that is allowed, and used by one frame at a time, the favoured one: the one that has
  waited longest when the other pools have nothing for it.

Those that find no room wait, in a line for each rank: no one overtakes another that may take from the same pools.

An ordinary frame takes its room at once; a larger one takes `STEP_BYTES` at a time, as its bytes arrive, so
that what is announced and not sent costs next to nothing. Frames that have begun may fill the pools, and
still no frame waits without end: the favoured one can always be received whole, gives everything back when it
is answered, and then the next one is favoured.

That needs peers that keep sending. So while someone waits, a share without progress is `overdue`, and its
connection is ended: a peer that may send and sent less than `PROGRESS_BYTES` within `STALL_SECONDS`, or a
large request that was not answered within `PARKED_SECONDS`. While nothing waits, slow peers may be slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

ORDINARY_BYTES: Final = 2 * 1024 * 1024
"""A producer's default request size, twice."""
STEP_BYTES: Final = 2 * 1024 * 1024
STEP_BYTES_MIN: Final = 64 * 1024
PROGRESS_BYTES: Final = 64 * 1024
STALL_SECONDS: Final = 1.0
PARKED_SECONDS: Final = 10.0
_NO_LIMIT_BYTES: Final = 1 << 62


class _Pool:
    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        return self.limit_bytes - self.used_bytes


@dataclass(slots=True, kw_only=True)
class RequestCounters:
    """Counters for metrics; they only grow, except `peak_bytes`, the most memory that was held at once."""

    frames: int = 0
    waits: int = 0
    overdue: int = 0
    peak_bytes: int = 0


class Share:
    """The memory of one large frame. The connection sets `received_bytes` to the bytes that have arrived."""

    __slots__ = (
        "_budget",
        "_pools",
        "_taken",
        "arrival",
        "frame_bytes",
        "granted_bytes",
        "is_complete",
        "is_released",
        "marked_at",
        "marked_bytes",
        "owner",
        "rank",
        "received_bytes",
    )

    def __init__(self, budget: RequestBudget, owner: object, frame_bytes: int, pools: list[_Pool]) -> None:
        self._budget = budget
        self._pools = pools
        self._taken = [0] * len(pools)
        self.rank = len(pools) - 1
        """0 for a frame that may take from `common` only; a frame that may take from more has a higher rank."""
        self.arrival = 0
        """A number that grows in the order in which shares began to wait."""
        self.owner = owner
        self.frame_bytes = frame_bytes
        self.granted_bytes = 0
        """How many bytes of the frame may be in memory."""
        self.received_bytes = 0
        self.is_complete = False
        self.is_released = False
        self.marked_at = 0.0
        self.marked_bytes = 0

    def release(self) -> None:
        """Releases everything. Idempotent."""
        self._budget.release(self)

    # -- for the budget

    def acquire(self, wanted_bytes: int, least_bytes: int) -> bool:
        """Takes up to `wanted_bytes` from the pools, in their order; nothing, if there are not even `least_bytes`."""
        pools = self._pools
        if pools[0].free_bytes >= wanted_bytes:  # nearly always
            self._acquire_from(0, wanted_bytes)
            return True
        if sum(pool.free_bytes for pool in pools) < least_bytes:
            return False
        for position, pool in enumerate(pools):
            count = min(wanted_bytes, pool.free_bytes)
            self._acquire_from(position, count)
            wanted_bytes -= count
        return True

    def _acquire_from(self, position: int, count: int) -> None:
        self._pools[position].used_bytes += count
        self._taken[position] += count
        self.granted_bytes += count

    def add_pool(self, pool: _Pool) -> None:
        self._pools = [*self._pools, pool]
        self._taken.append(0)

    def give_back(self) -> None:
        for pool, count in zip(self._pools, self._taken, strict=True):
            pool.used_bytes -= count
        self._taken = [0] * len(self._pools)


class RequestBudget:
    """The shares of one broker's connections. Times are seconds of any steady clock."""

    def __init__(
        self, limit_bytes: int | None, frame_bytes_max: int, *, on_free: Callable[[], None] = lambda: None
    ) -> None:
        """`limit_bytes` bounds all shares together and is at least `frame_bytes_max`; None for no limit.

        `on_free` is called when room that others wait for was given back: `admit` returns those that may continue.
        """
        self._on_free = on_free
        self._shares: dict[Share, None] = {}
        self._waiting: tuple[dict[Share, None], ...] = ({}, {}, {}, {})
        """Waiting shares by rank, each in the order in which they began to wait."""
        self._last_arrival = 0
        self._favoured: Share | None = None
        self.held_bytes = 0
        self.counters = RequestCounters()
        self._lay_out(limit_bytes, frame_bytes_max)

    def _lay_out(self, limit_bytes: int | None, frame_bytes_max: int) -> None:
        if limit_bytes is None:
            self._common = _Pool(_NO_LIMIT_BYTES)
            self._ordinary, self._proven, self._brokers, self._largest = (_Pool(0) for _ in range(4))
            return
        rest = max(limit_bytes - frame_bytes_max, 0)
        self._largest = _Pool(min(frame_bytes_max, limit_bytes))
        self._brokers = _Pool(rest // 8)
        self._proven = _Pool(rest // 8)
        self._ordinary = _Pool(rest // 4)
        self._common = _Pool(rest - 2 * (rest // 8) - rest // 4)

    @property
    def waiting_count(self) -> int:
        """Frames that may not be received for now."""
        return sum(map(len, self._waiting))

    def begin(
        self, owner: object, frame_bytes: int, *, is_proven: bool = False, is_of_broker: bool = False
    ) -> Share:
        """Returns the share of a large frame that was announced. `request_room` then decides how much of it may be received."""
        pools = [self._common]
        if is_of_broker or frame_bytes <= ORDINARY_BYTES:
            pools.append(self._ordinary)
            if is_of_broker or is_proven:
                pools.append(self._proven)
        if is_of_broker:
            pools.append(self._brokers)
        share = Share(self, owner, frame_bytes, pools)
        self._shares[share] = None
        self.counters.frames += 1
        return share

    def request_room(self, share: Share, now: float) -> bool:
        """Returns whether more of the frame may be received, up to `granted_bytes`. If not, it waits: see `admit`."""
        others_first = any(self._waiting[share.rank :]) and share is not self._favoured
        if not others_first and self._grant(share, now):
            return True
        self._last_arrival += 1
        share.arrival = self._last_arrival
        self._waiting[share.rank][share] = None
        self.counters.waits += 1
        return self._favoured is None and share in self.admit(now)

    def _grant(self, share: Share, now: float) -> bool:
        left = share.frame_bytes - share.granted_bytes
        if not left:
            return True
        is_whole = share.frame_bytes <= ORDINARY_BYTES
        wanted = left if is_whole else min(left, STEP_BYTES)
        least = left if is_whole else min(left, STEP_BYTES_MIN)
        before = share.granted_bytes
        if not share.acquire(wanted, least):
            return False
        self.held_bytes += share.granted_bytes - before
        if self.held_bytes > self.counters.peak_bytes:
            self.counters.peak_bytes = self.held_bytes
        share.marked_at, share.marked_bytes = now, share.received_bytes
        return True

    def admit(self, now: float) -> list[Share]:
        """Returns shares that waited and may receive more now. None overtakes another of its rank."""
        admitted: list[Share] = []
        for waiting in reversed(self._waiting):
            while waiting and self._grant(share := next(iter(waiting)), now):
                del waiting[share]
                admitted.append(share)
        if self._favoured is None and self._largest.limit_bytes:
            firsts = [next(iter(waiting)) for waiting in self._waiting if waiting]
            if firsts:
                admitted.append(self._favour(min(firsts, key=lambda share: share.arrival), now))
        return admitted

    def _favour(self, share: Share, now: float) -> Share:
        self._favoured = share
        share.add_pool(self._largest)
        del self._waiting[share.rank][share]
        granted = self._grant(share, now)
        assert granted, "the pool of the favoured frame holds the largest frame there can be"
        return share

    def complete(self, share: Share, now: float) -> None:
        """Notes that the whole frame has arrived: from now on it waits for its answer."""
        share.is_complete = True
        share.marked_at = now

    def release(self, share: Share) -> None:
        if share.is_released:
            return
        share.is_released = True
        share.give_back()
        self.held_bytes -= share.granted_bytes
        del self._shares[share]
        self._waiting[share.rank].pop(share, None)
        if self._favoured is share:
            self._favoured = None
        if any(self._waiting):
            self._on_free()

    def excuse(self, now: float) -> None:
        """Restarts all stall times, after a while in which nothing could be received."""
        for share in self._shares:
            share.marked_at, share.marked_bytes = now, share.received_bytes

    def overdue(self, now: float) -> Share | None:
        """Returns the largest share without progress, if others wait. Its connection must be closed."""
        if not any(self._waiting):
            return None
        late = max(self._standing_still(now), key=lambda share: share.granted_bytes, default=None)
        if late is not None:
            self.counters.overdue += 1
        return late

    def _standing_still(self, now: float) -> Iterable[Share]:
        for share in self._shares:
            if share in self._waiting[share.rank] or not share.granted_bytes:
                continue
            if share.is_complete:
                if now - share.marked_at >= PARKED_SECONDS:
                    yield share
            elif now - share.marked_at >= STALL_SECONDS:
                if share.received_bytes - share.marked_bytes < PROGRESS_BYTES:
                    yield share
                else:
                    share.marked_at, share.marked_bytes = now, share.received_bytes
