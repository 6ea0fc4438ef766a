"""Controller election and failover: the controller is the session that owns `/controller`.

A candidate creates that node, ephemeral, and raises `/controller_epoch` in the same commit: each term has an epoch of its own,
and a holder of `Term.check` in its commits can change nothing once another was elected. One task makes every transition;
whatever may have changed (a watch, the end of the session, the end of a back-off) only wakes it, and it looks at the registry
again. So an unknown outcome needs no care of its own: the next look finds the node ours or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from odradek.model.errors import OdradekError
from odradek.registry.port import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
    SessionExpired,
)
from odradek.runtime.ports import Entropy
from odradek.telemetry import events

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
_RETRY_SECONDS: Final = (0.05, 2.0)
_LOOK_SECONDS: Final = 15.0
"""Seconds between two reads of the registry without notifications. No watch is lost, but without reads a cluster could stay
without a controller."""
_RESIGN_SECONDS: Final = 5.0
_log = events.get("election")


class Term(NamedTuple):
    """One term of a controller. A commit that begins with `check` is refused once the term is over."""

    epoch: int
    check: Check


class Election:
    """A candidate for controller from `start` on, again after each election that it loses, until `resign` or `close`.

    `on_elected` runs in a task of its own, which is cancelled when the term ends; if it fails, this broker resigns and,
    after a while, is a candidate again. `on_deposed` follows the end of every term. `on_controller` gets the data of
    `/controller` (None while there is none) and the epoch whenever they change. The registry's `on_expired` is taken over, and
    what was set there is still called; the session is renewed here.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        candidate: bytes,
        on_elected: Callable[[Term], Awaitable[None]],
        on_deposed: Callable[[], Awaitable[None]],
        on_controller: Callable[[bytes | None, int], None],
        entropy: Entropy,
    ) -> None:
        self._registry = registry
        self._candidate = candidate
        self._on_elected = on_elected
        self._on_deposed = on_deposed
        self._on_controller = on_controller
        self._entropy = entropy
        self._announced: tuple[bytes | None, int] | None = None
        self._term: Term | None = None
        self._term_task: asyncio.Task[None] | None = None
        self._is_candidate = False
        self._session_is_over = False
        self._is_stale = False
        """The last read may be older than what this side already knows."""
        self._wake = asyncio.Event()
        self._skip_backoff = asyncio.Event()
        """Ends a back-off, which a mere notification does not."""
        self._has_left = asyncio.Event()
        self._run_task: asyncio.Task[None] | None = None
        self._leave_registry: Callable[[], None] = lambda: None

    @property
    def term(self) -> Term | None:
        """This side's term, as far as it knows."""
        return self._term

    async def start(self) -> None:
        """Becomes a candidate; returns before anyone is elected."""
        self._is_candidate = True
        self._wake.set()
        if self._run_task is None:
            self._leave_registry = self._watch_registry()
            self._run_task = asyncio.create_task(self._run(), name="election")

    async def resign(self) -> None:
        """Resigns and stops being a candidate. Another may be elected then, at the latest when the session ends."""
        self._is_candidate = False
        self._has_left.clear()
        self._wake.set()
        self._skip_backoff.set()
        if self._run_task is None or self._run_task.done():
            return
        try:
            async with asyncio.timeout(_RESIGN_SECONDS):
                await self._has_left.wait()
        except TimeoutError:
            _log.warning("controller_resignation_unheard")

    async def close(self) -> None:
        """Resigns, and does not use the registry any more."""
        await self.resign()
        task, self._run_task = self._run_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._depose()
        self._leave_registry()

    # -- notifications ------------------------------------------------------------------------------------------

    def _watch_registry(self) -> Callable[[], None]:
        registry, before = self._registry, self._registry.on_expired

        def session_over() -> None:
            self._session_is_over = True
            self._wake.set()
            self._skip_backoff.set()
            before()

        registry.on_expired = session_over
        ends = [registry.watch(path, self._wake.set) for path in (CONTROLLER, CONTROLLER_EPOCH)]

        def leave() -> None:
            for end in ends:
                end()
            if registry.on_expired is session_over:
                registry.on_expired = before

        return leave

    async def _run(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            self._skip_backoff.clear()
            try:
                await self._step()
                failures = 0
            except SessionExpired:
                self._session_is_over = True
                failures += 1
            except RegistryConflict:
                self._is_stale = True
                failures += 1
            except RegistryError as error:
                self._is_stale = True
                failures += 1
                _log.info("election_retried", reason=str(error), failures=failures)
            except Exception:  # noqa: BLE001 - the root of this task: without it the cluster would lose a candidate
                failures += 1
                _log.exception("election_failed")
            if self._session_is_over:
                await self._depose()
            await self._rest(failures)

    async def _rest(self, failures: int) -> None:
        """Waits for a notification; after failures for a time that grows, and that differs between candidates."""
        seconds, awaited = _LOOK_SECONDS, self._wake
        if failures:
            shortest, longest = _RETRY_SECONDS
            seconds, awaited = min(longest, shortest * 2.0 ** min(failures - 1, 10)), self._skip_backoff
        try:
            async with asyncio.timeout(seconds * (0.5 + 0.5 * self._entropy.uniform())):
                await awaited.wait()
        except TimeoutError:
            return

    # -- deciding --------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        """Compares the registry with this side's state, and takes the one step that follows."""
        if self._session_is_over or not self._is_candidate:
            await self._depose()
        if self._session_is_over:
            await self._registry.renew()
            self._session_is_over, self._is_stale = False, True
        if self._is_stale:
            await self._registry.sync()
            self._is_stale = False
        controller, epoch = await self._read()
        self._announce(
            None if controller is None else controller.data, 0 if epoch is None else int(epoch.data)
        )
        is_ours = controller is not None and controller.owner == self._registry.session_id
        if self._term is not None and (epoch is None or not is_ours or not self._is_of_term(epoch)):
            await self._depose()
        if controller is None:
            if self._is_candidate:
                await self._run_for_controller(epoch)
        elif is_ours and epoch is not None:
            await self._keep_or_resign(controller, epoch)
        if not self._is_candidate and not is_ours:
            self._has_left.set()

    async def _read(self) -> tuple[Node | None, Node | None]:
        """Reads the node of the controller and the epoch of its term."""
        epoch = await self._registry.get(CONTROLLER_EPOCH)
        while True:
            controller = await self._registry.get(CONTROLLER)
            after = await self._registry.get(CONTROLLER_EPOCH)
            if after == epoch:
                return controller, epoch
            epoch = after

    def _is_of_term(self, epoch: Node) -> bool:
        return self._term is not None and self._term.check.version == epoch.version

    async def _run_for_controller(self, epoch: Node | None) -> None:
        raised: Operation
        if epoch is None:
            number, version = 1, 0
            raised = Create(path=CONTROLLER_EPOCH, data=b"1")
        else:
            number, version = int(epoch.data) + 1, epoch.version + 1
            raised = Put(path=CONTROLLER_EPOCH, data=b"%d" % number, version=epoch.version)
        await self._registry.commit([Create(path=CONTROLLER, data=self._candidate, ephemeral=True), raised])
        self._announce(self._candidate, number)
        self._begin_term(number, version)

    async def _keep_or_resign(self, controller: Node, epoch: Node) -> None:
        """Keeps or resigns an office whose node is ours: of a commit with an unknown outcome, of this term, or of one to
        give up."""
        if self._is_candidate and self._term is None:
            self._begin_term(int(epoch.data), epoch.version)
            return
        failed = (
            self._term_task is not None and self._term_task.done() and _failure(self._term_task) is not None
        )
        if self._is_candidate and not failed:
            return
        await self._depose()
        guard = Check(path=CONTROLLER_EPOCH, version=epoch.version)
        await self._registry.commit([guard, Delete(path=CONTROLLER, version=controller.version)])
        self._announce(None, int(epoch.data))
        self._has_left.set()
        if failed:
            raise RegistryError("resigned: taking over as controller failed")

    # -- the term --------------------------------------------------------------------------------------------

    def _begin_term(self, epoch: int, version: int) -> None:
        self._term = Term(epoch=epoch, check=Check(path=CONTROLLER_EPOCH, version=version))
        _log.info("controller_elected", epoch=epoch)
        self._term_task = asyncio.create_task(self._serve(self._term), name=f"controller of term {epoch}")
        self._term_task.add_done_callback(lambda done: self._wake.set())

    async def _serve(self, term: Term) -> None:
        await self._on_elected(term)

    async def _depose(self) -> None:
        term, self._term = self._term, None
        task, self._term_task = self._term_task, None
        if term is None or task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        error = _failure(task)
        if error is not None and not isinstance(error, OdradekError):
            _log.error("controller_failed", epoch=term.epoch, error=repr(error))
        _log.info("controller_deposed", epoch=term.epoch, reason=str(error or ""))
        try:
            await self._on_deposed()
        except Exception:  # noqa: BLE001 - whatever it was, the term is over, and another may follow
            _log.exception("controller_not_put_away", epoch=term.epoch)

    def _announce(self, controller: bytes | None, epoch: int) -> None:
        if self._announced != (controller, epoch):
            self._announced = (controller, epoch)
            self._on_controller(controller, epoch)


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
