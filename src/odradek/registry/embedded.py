"""The registry of one machine: a journal in a directory, which several processes may share.

Each process has the whole tree in memory and reads there. A commit locks the journal, takes in what others appended, is judged,
appended and synced, and only then applied and visible (see `shared_journal`). Others notice at their next look: a process looks
every 50 ms while others are there, and five times less often while it is alone. It also looks whether the others' sessions live
(see `session_files`), and ends the ones that do not by a commit; so a process that comes back finds its session gone, under the
lock, before it can commit anything.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, TypeVar

from odradek.registry.journal import line_of
from odradek.registry.port import Node, Operation, RegistryError, SessionExpired
from odradek.registry.session_files import SessionFiles, SessionMonitor
from odradek.registry.shared_journal import JOURNAL_NAME, News, SharedJournal
from odradek.registry.tree import Change
from odradek.registry.watching import Watches
from odradek.runtime.ports import DirectoryLock, Runtime
from odradek.runtime.shielded import outcome_of
from odradek.telemetry import events

__all__ = ["JOURNAL_NAME", "EmbeddedRegistry"]

T = TypeVar("T")
SESSION_TIMEOUT_SECONDS: Final = 9.0
_LOOK_SECONDS: Final = 0.05
_LOOK_ALONE_SECONDS: Final = 0.25
_RESERVE_SECONDS: Final = 1.0
_LOCK_PAUSE_SECONDS: Final = (0.0005, 0.01)
_LOCK_SECONDS_MAX: Final = 10.0
_log = events.get("registry")


class EmbeddedRegistry:
    """A session with the registry of one machine, whose journal several processes may share. Use `EmbeddedRegistry.open`."""

    def __init__(
        self, runtime: Runtime, journal: SharedJournal, files: SessionFiles, session_timeout_s: float
    ) -> None:
        self.on_expired: Callable[[], None] = lambda: None
        self._runtime = runtime
        self._journal = journal
        self._files = files
        self._silence = SessionMonitor()
        self._beat_seconds = min(1.0, session_timeout_s / 5)
        self._beat_at = float("-inf")
        self._watches = Watches()
        self._writing = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._others: list[int] = []
        self._yields_until = 0.0
        self._session = files.begin()
        self._reserve_at = float("-inf")
        """The time of the next check of the reserve."""
        self._has_begun = False
        """The journal contains the session: from its first ephemeral node on."""
        self._is_over = False
        self._is_closed = False

    @classmethod
    def open(
        cls, runtime: Runtime, directory: str, *, session_timeout_s: float = SESSION_TIMEOUT_SECONDS
    ) -> EmbeddedRegistry:
        """Reads the journal in `directory`, or starts one. Raises `RegistryError` when it is damaged or cannot be used."""
        try:
            journal = SharedJournal(runtime.disk, directory)
            files = SessionFiles(runtime.disk, directory, runtime.entropy, session_timeout_s, journal.reserve)
            try:
                registry = cls(runtime, journal, files, session_timeout_s)
                registry._load()
            except (OSError, RegistryError):
                files.end()
                journal.close()
                raise
        except OSError as error:
            path = posixpath.join(directory, JOURNAL_NAME)
            raise RegistryError(f"cannot open {path}: {error.strerror or error}") from error
        return registry

    def _load(self) -> None:
        """Loads the journal, unless another process is writing to it: then the first use loads it."""
        journal = self._journal
        try:
            lock = journal.lock()
        except BlockingIOError:
            return
        try:
            if not journal.is_settled():
                journal.accept(journal.settle())
            if journal.is_due_for_rewriting and (news := journal.rewrite()):
                journal.accept(news)
            dead = [session for session in journal.state.sessions if self._files.heartbeat(session) is None]
            if dead:
                journal.accept(journal.append(self._ending(dead)))
        finally:
            lock.release()
        for session in dead:
            self._files.forget(session)

    # -- the port --------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session

    async def get(self, path: str) -> Node | None:
        await self._ready()
        return self._journal.state.tree.nodes.get(path)

    async def children(self, path: str) -> list[str]:
        await self._ready()
        return self._journal.state.tree.children(path)

    async def commit(self, operations: Sequence[Operation]) -> None:
        self._start_polling()
        await self._to_its_end(self._commit(list(operations)))

    async def sync(self) -> None:
        self._check()
        await self._to_its_end(self._catch_up())
        self._check()

    def watch(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        self._start_polling()
        return self._watches.add(path, on_change)

    async def renew(self) -> None:
        if self._is_over and not self._is_closed:
            with self._refusing():
                self._session = self._files.begin()
            self._has_begun = self._is_over = False

    async def close(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        if not self._is_closed:
            await self._to_its_end(self._close())

    # -- the session -----------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closed:
            raise RegistryError("the registry is closed")
        if self._is_over:
            raise SessionExpired("the session of this process was ended by another, which took it for dead")

    async def _ready(self) -> None:
        if not self._is_closed:
            self._check()
        if not self._journal.is_loaded:
            await self.sync()

    def _ending(self, sessions: Sequence[int]) -> bytes:
        """Returns the line that ends them."""
        tree = self._journal.state.tree
        gone: list[Change] = [(path, None) for session in sessions for path in tree.owned_by(session)]
        return line_of(gone, ended=sessions)

    async def _end_others(self, sessions: Sequence[int]) -> None:
        async with self._exclusive():
            known = self._journal.state.sessions
            dead = [session for session in sessions if session in known and session != self._session]
            dead = [
                session for session in dead if self._silence.is_over(session, self._files.heartbeat(session))
            ]
            if dead:
                _log.info("registry_sessions_ended", sessions=[f"{session:016x}" for session in dead])
                await self._append(self._ending(dead))
        await self._forget(sessions)

    async def _fill_reserve(self) -> None:
        """Keeps space so that brokers that share the registry can still record who leads while the disk is full."""
        if self._journal.is_loaded and self._journal.reserve.is_short(self._journal.position):
            await self._to_its_end(self._fill())

    async def _fill(self) -> None:
        async with self._exclusive():
            await self._runtime.offload.run(self._journal.fill_reserve)

    async def _forget(self, sessions: Sequence[int]) -> None:
        def forget() -> None:
            for session in sessions:
                self._files.forget(session)

        await self._runtime.offload.run(forget)

    async def _close(self) -> None:
        try:
            async with self._exclusive():
                self._is_closed = True
                if self._has_begun and not self._is_over:
                    await self._append(self._ending([self._session]))
        except RegistryError as error:
            _log.warning("registry_session_left_behind", reason=str(error))
        finally:
            self._is_closed = True
            self._watches.clear()
            await self._runtime.offload.run(self._files.end)
            self._journal.close()

    # -- reading and writing ---------------------------------------------------------------------------------

    async def _to_its_end(self, work: Coroutine[object, None, T]) -> T:
        """Runs work to its end even if the caller gives up: a write to the disk cannot be called back, and the state in
        memory must match the file."""
        return await outcome_of(asyncio.ensure_future(work))

    async def _commit(self, operations: Sequence[Operation]) -> None:
        async with self._exclusive():
            self._check()
            changes = self._journal.state.tree.decide(operations, self._session)
            if not changes:
                return
            begins = not self._has_begun and any(node and node.owner for _, node in changes)
            await self._append(line_of(changes, begun=[self._session] if begins else []))
            if self._journal.is_due_for_rewriting:
                await self._rewrite()
        self._yields_until = self._now() + _LOCK_PAUSE_SECONDS[0] * (1 + self._runtime.entropy.uniform())

    async def _append(self, line: bytes) -> None:
        self._accept(await self._runtime.offload.run(self._journal.append, line))

    async def _rewrite(self) -> None:
        try:
            news = await self._runtime.offload.run(self._journal.rewrite)
        except OSError as error:  # the commit that led here is still durable
            _log.warning("registry_not_rewritten", reason=str(error))
            return
        if news is not None:
            self._accept(news)
            _log.info("registry_rewritten", path=self._journal.path, bytes=news.position)

    async def _catch_up(self) -> None:
        async with self._writing:
            with self._refusing():
                if self._journal.is_current(self._journal.head()):
                    return
                news = await self._runtime.offload.run(self._journal.read)
            if news is not None:
                self._accept(news)
                return
        async with self._exclusive():
            pass  # it reads all there is

    def _accept(self, news: News) -> None:
        journal = self._journal
        journal.accept(news)
        if self._session in journal.state.sessions:
            self._has_begun = True
        elif self._has_begun and not self._is_over:
            self._is_over = True
            self._files.relinquish()
            if not self._is_closed:
                _log.warning("registry_session_expired", session=f"{self._session:016x}")
                asyncio.get_running_loop().call_soon(self._notify_expired)
        touched, journal.touched = journal.touched, {}
        self._watches.notify(touched)

    def _notify_expired(self) -> None:
        if not self._is_closed:
            self.on_expired()

    # -- the lock --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Excludes other writers inside the block, in which the state is complete. Errors of the disk become
        `RegistryError`."""
        async with self._writing:
            if self._is_closed:
                raise RegistryError("the registry is closed")
            with self._refusing():
                lock = await self._locked()
                try:
                    if not self._journal.is_settled():
                        self._accept(await self._runtime.offload.run(self._journal.settle))
                    yield
                finally:
                    lock.release()

    async def _locked(self) -> DirectoryLock:
        if self._others and (rest := self._yields_until - self._now()) > 0:
            await asyncio.sleep(rest)  # who commits without end lets others have their turn
        deadline = self._now() + _LOCK_SECONDS_MAX
        pause, longest = _LOCK_PAUSE_SECONDS
        while True:
            try:
                return self._journal.lock()
            except BlockingIOError:
                if self._now() > deadline:
                    raise RegistryError(
                        f"another process has held the lock {self._journal.lock_path} for {_LOCK_SECONDS_MAX:.0f} s: "
                        "if it is stopped, let it go on or kill it"
                    ) from None
            await asyncio.sleep(pause * (0.5 + self._runtime.entropy.uniform()))
            pause = min(2 * pause, longest)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            path = self._journal.path
            raise RegistryError(f"cannot write {path}: {error.strerror or error}") from error

    def _now(self) -> float:
        return self._runtime.clock.monotonic()

    # -- looking out for others ------------------------------------------------------------------------------

    def _start_polling(self) -> None:
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().create_task(self._poll(), name="registry look-out")

    async def _poll(self) -> None:
        is_well = True
        while True:
            try:
                await self._poll_once()
                is_well = True
            except (OSError, RegistryError) as error:
                if is_well:
                    _log.warning("registry_not_read", path=self._journal.path, reason=str(error))
                is_well = False
            except Exception:  # noqa: BLE001 - the root of this task: without it no watch would fire any more
                _log.exception("registry_look_failed")
            await asyncio.sleep(_LOOK_SECONDS if self._others else _LOOK_ALONE_SECONDS)

    async def _poll_once(self) -> None:
        if not self._journal.is_current(self._journal.head()):  # others may have come and gone already
            await self._to_its_end(self._catch_up())
        self._others = self._files.others()
        now, known = self._now(), self._journal.state.sessions
        if self._others and now >= self._beat_at + self._beat_seconds and not self._is_over:
            self._beat_at = now
            self._files.beat()
        if self._others and now >= self._reserve_at:
            self._reserve_at = now + _RESERVE_SECONDS
            await self._fill_reserve()
        others = dict.fromkeys([*self._others, *(session for session in known if session != self._session)])
        dead = self._silence.expired_sessions(
            {session: self._files.heartbeat(session) for session in others}, now
        )
        if any(session in known for session in dead):
            await self._to_its_end(self._end_others(dead))
        elif dead:
            await self._forget(dead)
