"""A broker's disks against the record in the registry; and who is registered under its id."""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from tests.unit.cluster.conftest import FakeClock, FakeCluster, Session

from odradek.broker.cluster.disk_identity import DiskIdentity, DiskState, compared
from odradek.broker.cluster.previous_incarnation import IncarnationEvidence, PreviousIncarnation
from odradek.cluster.known_brokers import DiskClaim, Generation, KnownBroker, known_brokers
from odradek.cluster.registration import Registration, register
from odradek.config.topic import LogConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId, TopicPartition
from odradek.registry import RegistryError
from odradek.registry.tree import Tree
from odradek.runtime.ports import Runtime
from odradek.storage.directories.generation import DiskGeneration, format_generation, parse_generation
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_manager import LogManager
from odradek.storage.files.checkpoints import sealed
from odradek.storage.log.log import Log
from odradek.testing.sim import Medium, SimDisk, SimEntropy
from odradek.testing.sim.disk_faults import CrashKind

ME = BrokerId(1)
KNOWN = {"a": Generation(5, "five"), "b": Generation(3, "three")}


def disk(
    directory_id: str, number: int = 5, token: str = "five", following: str = "six", **more: Any
) -> DiskState:
    generation = DiskGeneration(number=number, token=token, next_token=following)
    return DiskState(f"/{directory_id}", directory_id, more.pop("generation", generation), **more)


CURRENT_B = disk("b", 3, "three", "four")


@pytest.mark.parametrize(
    ("disks", "offline_count", "is_gone", "older"),
    [
        ([disk("a"), CURRENT_B], 0, False, set()),
        ([disk("a"), CURRENT_B, disk("new", generation=None)], 0, False, set()),
        ([disk("a")], 0, True, set()),
        ([disk("a")], 1, False, set()),  # it may be the one that is offline
        ([], 1, True, set()),
        ([disk("a", 4, "four", "five"), CURRENT_B], 0, False, set()),  # it died before it noted the step
        ([disk("a", 4, "four", "another"), CURRENT_B], 0, False, {"/a"}),
        ([disk("a", 1, "one", "two"), CURRENT_B], 0, False, {"/a"}),
        ([disk("a", 5, "twin", "x"), CURRENT_B], 0, False, {"/a"}),  # a copy that was raised as often
        ([disk("a", 9, "nine", "ten"), CURRENT_B], 0, False, set()),  # the registry went back
        ([disk("a", generation=None), CURRENT_B], 0, False, {"/a"}),
        ([disk("a", generation=None, is_damaged=True), CURRENT_B], 0, False, set()),
    ],
)
def test_disks_are_compared_with_the_record(
    disks: list[DiskState], offline_count: int, is_gone: bool, older: set[str]
) -> None:
    findings = compared(KNOWN, disks, offline_count=offline_count)
    assert (findings.is_gone, set(findings.older)) == (is_gone, older)


def test_a_generation_reads_back() -> None:
    generation = DiskGeneration(number=7, token="t", next_token="n", boot_id="b")
    assert parse_generation(format_generation(generation)) == generation


def test_a_generation_of_an_older_version_says_nothing_of_the_machine() -> None:
    data = sealed({"version": "1", "number": "7", "token": "t", "next": "n"})
    assert parse_generation(data) == DiskGeneration(number=7, token="t", next_token="n")


class Inline:
    async def run(self, work: Any, *arguments: object) -> Any:
        return work(*arguments)


class Machine:
    """A broker's disk, and the store of its cluster."""

    def __init__(self) -> None:
        self.tree, self.medium, self.lives = Tree(), Medium(), 0
        self.medium.make_durable_folder("/data")

    def start(self, boot_id: str = "first") -> tuple[DiskIdentity, Session]:
        self.lives += 1
        disk = self.disk = SimDisk(self.medium, rng=Random(self.lives), now_ms=lambda: 0)
        runtime = Runtime(
            clock=FakeClock(),
            entropy=SimEntropy(Random(self.lives)),
            disk=disk,
            offload=Inline(),
            boot_id=boot_id,
        )
        self.directories = LogManager.open(runtime, ["/data"], node_id=1, cluster_id="c")
        session: Any = Session(self.tree, self.lives)
        return DiskIdentity(runtime, session, self.directories, ME, f"life {self.lives}"), session

    def end(self) -> None:
        self.directories.close()

    def kill(self) -> None:
        self.disk.crash(CrashKind.PROCESS_KILL)

    def content(self) -> bytes:
        return bytes(self.medium.file("/data/generation").cache)

    def restore(self, content: bytes) -> None:
        self.medium.file("/data/generation").overwrite(content)


async def begin(identity: DiskIdentity) -> bool:
    """A life begins, is registered, and goes on; whether its disk is an older copy."""
    findings = await identity.load()
    assert not findings.is_gone
    await identity.raise_generation()
    return bool(findings.older)


async def test_each_start_and_each_checkpoint_makes_what_was_copied_before_an_older_copy() -> None:
    machine = Machine()
    identity, _ = machine.start()
    assert not await begin(identity)
    first = machine.content()
    await identity.raise_generation()
    second = machine.content()
    machine.end()

    machine.restore(second)  # the newest: nothing was lost
    identity, _ = machine.start()
    assert not await begin(identity)
    machine.end()
    for copy in (first, second):
        machine.restore(copy)
        identity, session = machine.start()
        assert await begin(identity)
        machine.end()
    identity, session = machine.start()
    assert not await begin(identity)
    await identity.raise_generation(is_clean=True)
    assert (await known_brokers(session))[ME].is_clean  # type: ignore[arg-type]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_between_the_disk_and_the_registry_makes_no_copy(when: str) -> None:
    machine = Machine()
    identity, session = machine.start()
    await begin(identity)
    session.fails = [when]
    with pytest.raises(RegistryError):
        await identity.raise_generation()
    machine.end()
    identity, session = machine.start()
    assert not await begin(identity)
    session.fails = [when]
    with pytest.raises(RegistryError):
        await identity.raise_generation()
    await identity.raise_generation()  # the same life finds out, too


async def test_a_disk_that_was_too_full_for_its_first_generation_is_no_older_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    identity, _ = machine.start()

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(LogDirectory, "write_generation", is_full)
        assert not await begin(identity)
    machine.end()
    identity, _ = machine.start()
    assert not await begin(identity)


async def test_a_disk_that_breaks_at_its_generation_is_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    identity, _ = machine.start()
    assert not await begin(identity)

    def breaks(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(LogDirectory, "write_generation", breaks)
    await identity.raise_generation()
    assert machine.directories.all_failed


async def test_the_record_stays_as_it_is_until_the_disks_say_what_was_lost() -> None:
    """Else a disk that was too full for the note would make the loss look as if it had never been."""
    machine = Machine()
    identity, session = machine.start()
    assert not await begin(identity)
    (directory,) = machine.directories.all()
    directory.has_unwritten_losses = True
    before = (await known_brokers(session))[ME].directories
    await identity.raise_generation()
    assert (await known_brokers(session))[ME].directories == before
    directory.has_unwritten_losses = False
    await identity.raise_generation()
    assert (await known_brokers(session))[ME].directories != before


async def test_of_two_processes_on_copies_of_a_disk_one_goes_on() -> None:
    machine = Machine()
    identity, _ = machine.start()
    await begin(identity)
    machine.end()
    content = machine.content()
    first, _ = machine.start()
    await first.load()
    machine.end()
    machine.restore(content)
    second, _ = machine.start()
    await second.load()

    await second.raise_generation()
    with pytest.raises(KafkaError) as caught:
        await first.raise_generation()
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    await second.raise_generation()


async def test_a_step_of_a_former_life_that_comes_late_is_its_own() -> None:
    machine = Machine()
    identity, _ = machine.start()
    await begin(identity)
    late = await identity._next(is_clean=False)
    machine.end()
    identity, session = machine.start()
    await identity.load()
    await session.commit(await late.operations(session))  # type: ignore[arg-type]
    before = (await known_brokers(session))[ME].directories
    await identity.raise_generation()
    assert (await known_brokers(session))[ME].directories != before


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


REGISTRATION = Registration(broker_id=ME, directory_id="d", host="h", port=9092)


async def test_a_registration_takes_the_step_of_the_disks_with_it_or_is_refused(cluster: Any) -> None:
    session = cluster.session()
    disk_claim = DiskClaim(
        version=None, after=KnownBroker(broker_id=ME, directories={"d": Generation(1, "one")})
    )
    epoch = await register(session, REGISTRATION, claim=disk_claim)
    assert await register(session, REGISTRATION, claim=disk_claim) == epoch
    assert (await known_brokers(session))[ME].directories == {"d": Generation(1, "one")}
    twin = DiskClaim(version=None, after=KnownBroker(broker_id=ME, directories={"d": Generation(1, "twin")}))
    with pytest.raises(KafkaError) as caught:
        await register(cluster.session(), REGISTRATION, claim=twin)
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


class FakePreviousIncarnation(PreviousIncarnation):
    """Gives the answers of a test."""

    signs: list[IncarnationEvidence]

    async def _probe(self, other: Registration) -> IncarnationEvidence:
        return self.signs.pop(0)


def former(
    session: Any, *signs: IncarnationEvidence, is_older: bool = False, session_timeout_s: float = 0.0
) -> FakePreviousIncarnation:
    runtime: Any = Runtime(clock=FakeClock(), entropy=SimEntropy(Random(1)), disk=None, offload=Inline())  # type: ignore[arg-type]
    asked = FakePreviousIncarnation(
        runtime,
        session,
        REGISTRATION,
        incarnation="me",
        is_older_copy=lambda: is_older,
        session_timeout_s=session_timeout_s,
    )
    asked.signs = list(signs)
    return asked


async def test_a_registration_of_a_dead_process_is_taken_over_and_of_a_live_one_never(cluster: Any) -> None:
    assert await former(cluster.session()).gone() is None, "no one is registered"
    session = cluster.session()
    await register(session, REGISTRATION)
    assert await former(session).gone() is None, "it is our own"
    await former(cluster.session(), IncarnationEvidence.IS_DEAD).gone()
    with pytest.raises(KafkaError) as caught:
        await former(cluster.session(), IncarnationEvidence.LIVES).gone()
    assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def elsewhere(host: str) -> Registration:
    """The broker as it was before its disk was lost, or another one with its id."""
    return replace(REGISTRATION, directory_id="before", host=host)


async def test_a_wiped_broker_takes_over_the_registration_of_its_dead_former_life_at_once(
    cluster: Any,
) -> None:
    await register(cluster.session(), elsewhere("broker.example"))
    session = cluster.session()
    with pytest.raises(KafkaError, match="data of its own"):
        await register(session, REGISTRATION)
    with pytest.raises(KafkaError, match="data of its own"):
        await former(session, IncarnationEvidence.LIVES).gone()
    dead = await former(session, IncarnationEvidence.IS_DEAD).gone()
    assert dead is not None
    await register(session, REGISTRATION, dead=dead)
    node = await session.get(REGISTRATION.path)
    assert node.owner == session.session_id


async def test_a_former_life_that_was_replaced_meanwhile_is_not_taken_for_the_dead_one(cluster: Any) -> None:
    first = cluster.session()
    await register(first, elsewhere("broker.example"))
    session = cluster.session()
    dead = await former(session, IncarnationEvidence.IS_DEAD).gone()
    first.expire()
    await register(cluster.session(), elsewhere("broker.example"))
    with pytest.raises(KafkaError, match="data of its own"):
        await register(session, REGISTRATION, dead=dead)


@pytest.mark.parametrize("host", ["", "127.0.0.1", "::1", "localhost"])
async def test_a_wiped_broker_does_not_judge_a_loopback_address_and_waits_for_the_sessions_end(
    cluster: Any, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = cluster.session()
    await register(holder, elsewhere(host))

    async def sleep(seconds: float) -> None:
        holder.expire()

    monkeypatch.setattr("odradek.broker.cluster.previous_incarnation.asyncio.sleep", sleep)
    assert await former(cluster.session(), IncarnationEvidence.IS_DEAD).gone() is None


@pytest.mark.parametrize(
    ("sign", "is_older"), [(IncarnationEvidence.IS_SILENT, False), (IncarnationEvidence.IS_DEAD, True)]
)
async def test_what_does_not_answer_or_is_newer_than_our_disk_is_waited_for(
    cluster: Any, sign: IncarnationEvidence, is_older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = cluster.session()
    await register(session, REGISTRATION)
    rounds: list[float] = []

    async def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            session.expire()

    monkeypatch.setattr("odradek.broker.cluster.previous_incarnation.asyncio.sleep", sleep)
    await former(cluster.session(), *[sign] * 3, is_older=is_older).gone()
    assert len(rounds) == 3


@pytest.mark.parametrize(("session_timeout_s", "waits_s"), [(9.0, 120.0), (300.0, 900.0)])
async def test_the_wait_for_a_silent_former_life_is_longer_than_its_session(
    cluster: Any, session_timeout_s: float, waits_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(cluster.session(), REGISTRATION)
    asked = former(
        cluster.session(), *[IncarnationEvidence.IS_SILENT] * 200, session_timeout_s=session_timeout_s
    )
    slept = 0.0

    async def sleep(_: float) -> None:
        nonlocal slept
        slept += 10.0
        asked._runtime.clock.now += 10.0

    monkeypatch.setattr("odradek.broker.cluster.previous_incarnation.asyncio.sleep", sleep)
    with pytest.raises(KafkaError, match="does not answer"):
        await asked.gone()
    assert slept == waits_s + 10.0


# -- what a machine forgets


LOG, LOG_ID = TopicPartition("t", 0), UUID(int=1)


async def opened(machine: Machine, *, is_uncertain: bool = False) -> Log:
    return await machine.directories.open_log(LOG, LOG_ID, LogConfig(), is_uncertain=is_uncertain)


@pytest.mark.parametrize(
    ("ends_cleanly", "boot_id", "forgot"),
    [(True, "second", False), (False, "first", False), (False, "second", True), (False, "", True)],
)
async def test_a_machine_that_was_started_again_forgot_what_a_broker_left_that_did_not_stop(
    ends_cleanly: bool, boot_id: str, forgot: bool
) -> None:
    machine = Machine()
    identity, _ = machine.start()
    await begin(identity)
    await opened(machine)
    if ends_cleanly:
        machine.end()
    else:
        machine.kill()
    machine.start(boot_id)
    assert machine.directories.may_have_forgotten(LOG) is forgot


async def test_what_was_forgotten_is_known_till_it_is_settled_however_often_the_process_is_killed() -> None:
    machine = Machine()
    identity, _ = machine.start("first")
    await begin(identity)
    await opened(machine)
    machine.kill()
    for _ in range(2):
        identity, _ = machine.start("second")
        assert machine.directories.may_have_forgotten(LOG)
        log = await opened(machine, is_uncertain=True)
        assert log.damage is not None
        assert not log.lacks_records, "no one knows"
        await begin(identity)
        machine.kill()

    identity, _ = machine.start("second")
    log = await opened(machine, is_uncertain=True)
    log.mended()
    await begin(identity)
    machine.kill()
    machine.start("second")
    assert not machine.directories.may_have_forgotten(LOG)
