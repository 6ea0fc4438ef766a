"""Checks that this broker still has the disks that it had: compares the registry's record with the disks (decision 0027).

At the start the record is read and judged. Then, once everything that follows from it is on the disks, each disk notes the next
generation, and the registration puts it into the record, in one commit. Afterwards the generation is raised now and then.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.cluster.loss_evidence import ALL_THERE, DiskFindings
from odradek.broker.cluster.previous_incarnation import PreviousIncarnation
from odradek.cluster.known_brokers import KNOWN, DiskClaim, Generation, KnownBroker, known_broker_from
from odradek.cluster.registration import Registration
from odradek.model.ids import BrokerId
from odradek.registry import Registry
from odradek.runtime.ports import Runtime
from odradek.storage.directories.generation import DiskGeneration
from odradek.storage.directories.log_manager import LogManager
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net.outgoing_security import OutgoingSecurity

_log = events.get("broker")


class DiskState(NamedTuple):
    """One data directory that can be used, as it was found."""

    path: str
    directory_id: str
    generation: DiskGeneration | None
    is_damaged: bool = False
    """The file that says the generation is."""


def compared(
    known: Mapping[str, Generation], disks: Sequence[DiskState], *, offline_count: int
) -> DiskFindings:
    """Compares the record, by directory ids, with the disks. Offline disks may be any of the missing ones."""
    present = {disk.directory_id for disk in disks}
    missing = [directory_id for directory_id in known if directory_id not in present]
    older = [disk.path for disk in disks if disk.directory_id in known and _is_older(disk, known)]
    return DiskFindings(is_gone=len(missing) > offline_count, older=frozenset(older))


def _is_older(disk: DiskState, known: Mapping[str, Generation]) -> bool:
    if disk.generation is None:
        had_one = known[disk.directory_id].number > 0  # 0: there was no space for its first one
        return had_one and not disk.is_damaged
    return not disk.generation.is_current(*known[disk.directory_id])


class DiskIdentity:
    """Compares this broker's disks with the registry's record of them, and keeps both up to date. `load` at the start;
    `claim` and `claimed` around the registration; then `raise_generation`. Used on the event loop."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        directories: LogManager,
        me: BrokerId,
        incarnation: str,
        *,
        session_timeout_s: float = 0.0,
        security: Callable[[], OutgoingSecurity | None] = lambda: None,
    ) -> None:
        """`incarnation` is this process's answer to IdentifyBroker. `session_timeout_s` is the registry's."""
        self._runtime = runtime
        self._incarnation = incarnation
        self._session_timeout_s = session_timeout_s
        self._security = security
        self._findings = ALL_THERE
        self._registry = registry
        self._directories = directories
        self._me = me
        self._version: int | None = None
        """The version of the record that this broker last read or wrote; None while there is no record."""
        self._known: Mapping[str, Generation] = {}
        self._own_tokens: set[str] = set()
        """Tokens that an earlier process of this broker noted on its disks, and may still write into the record."""
        self._pending: DiskClaim | None = None
        """A step that may have been taken or not."""
        self._is_raising = asyncio.Lock()

    async def load(self) -> DiskFindings:
        """Read the record. RegistryError."""
        await self._registry.sync()
        node = await self._registry.get(f"{KNOWN}/{self._me}")
        if node is not None:
            self._version, self._known = node.version, known_broker_from(self._me, node.data).directories
        online = [directory for directory in self._directories.all() if directory.offline is None]
        disks = [
            DiskState(
                directory.path, directory.directory_id, directory.generation, directory.generation_is_damaged
            )
            for directory in online
        ]
        offline_count = len(self._directories.all()) - len(online)
        findings = self._findings = compared(self._known, disks, offline_count=offline_count)
        if findings.is_gone:
            present = {disk.directory_id for disk in disks}
            missing = sorted(directory_id for directory_id in self._known if directory_id not in present)
            _log.error("log_directory_is_gone", directories=missing, of=sorted(self._known))
        for path in sorted(findings.older):
            _log.error("log_directory_is_an_older_copy", path=path)
        self._own_tokens = {
            disk.generation.next_token
            for disk in disks
            if disk.generation is not None and disk.path not in findings.older
        }
        return findings

    async def alone(self, registration: Registration) -> int | None:
        """Returns when no other process is this broker, with the session of a dead former life: see `PreviousIncarnation`."""
        former = PreviousIncarnation(
            self._runtime,
            self._registry,
            registration,
            incarnation=self._incarnation,
            is_older_copy=lambda: bool(self._findings.older),
            session_timeout_s=self._session_timeout_s,
            security=self._security,
        )
        return await former.gone()

    async def claim(self) -> DiskClaim:
        """Returns the step for the registration of a life: a new one begins, or the current one is still what
        the record names."""
        async with self._is_raising:
            return self._pending or await self._next(is_clean=False)

    async def confirmed(self) -> DiskClaim | None:
        """Returns the step that was taken last, or may have been; None while none was."""
        if self._pending is not None or self._version is None:
            return self._pending
        known = KnownBroker(broker_id=self._me, directories=self._known)
        return DiskClaim(version=self._version, after=known)

    async def claimed(self) -> None:
        """Notes that the step was taken. Raises RegistryError."""
        if self._pending is not None:
            self._version = await self._pending.committed_version(self._registry)
            self._known = self._pending.after.directories
            self._pending = None

    async def raise_generation(self, *, is_clean: bool = False) -> None:
        """Raises the generation, so that a copy of a disk that was made before this is recognised from now on. `is_clean`:
        this life ends.

        DUPLICATE_BROKER_REGISTRATION when another process, on a copy, did so meanwhile. RegistryError, RegistryConflict: it
        may have happened, and is tried again the next time."""
        async with self._is_raising:
            if self._pending is not None:
                await self._commit_claim(self._pending)
            await self._commit_claim(await self._next(is_clean=is_clean))

    async def _commit_claim(self, claim: DiskClaim) -> None:
        operations = await claim.operations(self._registry)
        if operations:
            await self._registry.commit(operations)
        await self.claimed()

    async def _next(self, *, is_clean: bool) -> DiskClaim:
        """Returns the next generation; the disks note it first. One that cannot keeps the generation that it has.

        While the disks do not record what was lost, the registry's record must: then it stays as it is.
        """
        if self._directories.owes_evidence:
            after = KnownBroker(broker_id=self._me, directories=self._known, is_clean=False)
            self._pending = DiskClaim(version=self._version, after=after, own_tokens=self._own_tokens)
            return self._pending
        token = _token(self._runtime)
        directories: dict[str, Generation] = {}
        all_online = True
        for directory in self._directories.all():
            if directory.offline is not None:
                all_online = False
                continue
            before = self._generation_of(directory.directory_id, directory.generation)
            noted = DiskGeneration(
                number=before.number,
                token=before.token,
                next_token=token,
                boot_id=self._directories.boot_id_to_note(directory),
            )
            try:
                await self._runtime.offload.run(directory.write_generation, noted)
            except OSError as error:
                _log.warning("generation_not_written", path=directory.path, error=error)
                self._directories.own_file_failed(directory, error)
                directories[directory.directory_id] = before
            else:
                directories[directory.directory_id] = Generation(before.number + 1, token)
        # What was on a deleted directory is noted elsewhere by now. But an offline directory may come back.
        offline = (
            {}
            if all_online
            else {
                directory_id: self._known[directory_id]
                for directory_id in self._known
                if directory_id not in directories
            }
        )
        after = KnownBroker(broker_id=self._me, directories={**offline, **directories}, is_clean=is_clean)
        self._pending = DiskClaim(version=self._version, after=after, own_tokens=self._own_tokens)
        return self._pending

    def _generation_of(self, directory_id: str, on_disk: DiskGeneration | None) -> Generation:
        """Returns the record's generation, or one above the disk's if the registry went back to an older state."""
        known = self._known.get(directory_id, Generation(0, ""))
        if on_disk is not None and on_disk.number > known.number:
            return Generation(on_disk.number + 1, known.token)
        return known


def _token(runtime: Runtime) -> str:
    return base64.urlsafe_b64encode(runtime.entropy.uuid().bytes).decode().rstrip("=")
