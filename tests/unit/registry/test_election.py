"""Elections on the simulated registry: one controller at a time as far as the registry is concerned, and always another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.kit.waiting import until

from odradek.registry import Create, Delete, Put, RegistryConflict, RegistryError, SessionExpired
from odradek.registry.election import CONTROLLER, CONTROLLER_EPOCH, Election, Term
from odradek.testing.sim import CrashKind, Host, World, stream
from odradek.testing.sim.registry import RegistryConditions, SimRegistry, SimRegistryStore

pytestmark = pytest.mark.sim


class Candidate:
    """A host that stands, and in office writes what only the controller may."""

    def __init__(self, store: SimRegistryStore, host: Host) -> None:
        self.store = store
        self.host = host
        self.election: Election
        self.registry: SimRegistry
        self.announced: list[tuple[bytes | None, int]] = []
        self.terms: list[Term] = []
        self.in_office: Term | None = None
        self.ended: list[int] = []
        self.take_office: Callable[[Term], Awaitable[None]] | None = None

    def boot(self) -> None:
        self.in_office = None
        self.announced.clear()
        life = self.host.boot()
        self.host.spawn(self._stand(life.runtime))

    async def _stand(self, runtime: Any) -> None:
        self.registry = await self.store.connect(self.host.name)
        self.election = Election(
            self.registry,
            candidate=self.host.name.encode(),
            on_elected=self._elected,
            on_deposed=self._deposed,
            on_controller=lambda data, epoch: self.announced.append((data, epoch)),
            entropy=runtime.entropy,
        )
        await self.election.start()

    async def _elected(self, term: Term) -> None:
        assert self.in_office is None
        self.in_office = term
        self.terms.append(term)
        if self.take_office is not None:
            await self.take_office(term)

    async def _deposed(self) -> None:
        assert self.in_office is not None
        self.ended.append(self.in_office.epoch)
        self.in_office = None


def play(
    seed: int,
    scenario: Callable[[World, SimRegistryStore, list[Candidate]], Awaitable[None]],
    *,
    count: int = 3,
    conditions: RegistryConditions | None = None,
) -> None:
    with World(seed, seconds_max=600) as world:
        store = SimRegistryStore(world, conditions=conditions)
        candidates = [Candidate(store, world.host(f"broker-{number}")) for number in range(count)]

        async def main() -> None:
            for candidate in candidates:
                candidate.boot()
            await scenario(world, store, candidates)

        world.run(main)


def leader(store: SimRegistryStore, candidates: list[Candidate]) -> Candidate | None:
    """Whom the registry calls controller, if he knows it, too."""
    node = store.tree.nodes.get(CONTROLLER)
    epoch = store.tree.nodes.get(CONTROLLER_EPOCH)
    for candidate in candidates:
        if node and epoch and candidate.in_office and candidate.host.name.encode() == node.data:
            return candidate if candidate.in_office.epoch == int(epoch.data) else None
    return None


async def elected(
    store: SimRegistryStore, candidates: list[Candidate], *, other_than: Candidate | None = None
) -> Candidate:
    await until(lambda: leader(store, candidates) not in (None, other_than))
    candidate = leader(store, candidates)
    assert candidate is not None
    return candidate


def test_one_of_three_is_elected_and_all_hear_of_it() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        first = await elected(store, candidates)
        assert [candidate for candidate in candidates if candidate.in_office] == [first]
        wanted = (first.host.name.encode(), 1)
        await until(lambda: all(candidate.announced[-1:] == [wanted] for candidate in candidates))

    play(1, scenario)


def test_another_is_elected_when_the_controller_crashes_and_its_epoch_is_higher() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        first = await elected(store, candidates)
        first.host.crash(CrashKind.PROCESS_KILL)
        rest = [candidate for candidate in candidates if candidate is not first]
        second = await elected(store, rest)
        assert second.terms[-1].epoch == first.terms[-1].epoch + 1

    play(2, scenario)


def test_a_controller_whose_session_expires_is_deposed_stands_again_and_can_change_nothing_before() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        first = await elected(store, candidates)
        term = first.terms[-1]
        store.cut_off(first.host.name)
        second = await elected(store, candidates, other_than=first)
        assert first.in_office is term, "it cannot know yet"
        store.heal()
        with pytest.raises(SessionExpired):
            await first.registry.commit([term.check, Create(path="/late", data=b"")])
        await until(lambda: first.in_office is None)
        assert "/late" not in store.tree.nodes
        await second.election.resign()
        await elected(store, candidates, other_than=second)

    play(3, scenario)


def test_a_deposed_controllers_commit_is_refused_also_in_its_next_session() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        first = await elected(store, candidates)
        term = first.terms[-1]
        store.expire(first.host.name)
        await until(lambda: term.epoch in first.ended)
        again = await elected(store, candidates)
        await again.registry.commit([again.terms[-1].check, Create(path="/a", data=b"")])
        with pytest.raises(RegistryConflict):
            await again.registry.commit([term.check, Create(path="/b", data=b"")])

    play(4, scenario)


def test_who_resigns_stands_no_more_and_another_follows_at_once() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        first = await elected(store, candidates)
        before = world.loop.time()
        await first.election.resign()
        assert first.in_office is None
        second = await elected(store, candidates, other_than=first)
        assert world.loop.time() - before < store.session_timeout_s / 2
        await second.election.close()
        await second.registry.close()
        third = await elected(store, candidates, other_than=second)
        assert third not in (first, second)

    play(5, scenario)


def test_the_office_is_given_up_when_taking_it_fails_and_sought_again() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        (only,) = candidates
        failures = 3

        async def take_office(term: Term) -> None:
            nonlocal failures
            if failures:
                failures -= 1
                raise RegistryError("the state could not be read")

        only.take_office = take_office
        await until(lambda: not failures and only.in_office)
        await asyncio.sleep(30)
        assert only.in_office is only.terms[-1]
        assert only.ended == [term.epoch for term in only.terms[:-1]]
        assert 3 <= len(only.ended) <= 4

    play(6, scenario, count=1)


def test_taking_office_is_broken_off_when_the_session_expires() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        (only,) = candidates
        outcomes: list[str] = []

        async def take_office(term: Term) -> None:
            try:
                await asyncio.sleep(0 if outcomes else 1000)
            except asyncio.CancelledError:
                outcomes.append("cancelled")
                raise
            outcomes.append("taken")

        only.take_office = take_office
        await until(lambda: only.in_office)
        store.expire("broker-0")
        await until(lambda: "taken" in outcomes, seconds=10)
        assert outcomes == ["cancelled", "taken"]

    play(7, scenario, count=1)


def test_a_node_that_someone_removed_ends_the_term() -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        (only,) = candidates
        await until(lambda: only.in_office)
        outside = await store.connect("outside")
        await outside.commit([Delete(path=CONTROLLER, version=0)])
        await until(lambda: only.ended == [1] and only.in_office)
        assert only.terms[-1].epoch == 2
        await outside.commit([Put(path=CONTROLLER_EPOCH, data=b"9", version=1)])
        await until(lambda: only.ended == [1, 2])

    play(8, scenario, count=1)


def test_an_idle_election_asks_the_registry_little(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        await elected(store, candidates)
        await asyncio.sleep(30)
        reads: list[str] = []
        read = SimRegistry.get

        async def counted(registry: SimRegistry, path: str) -> Any:
            reads.append(path)
            return await read(registry, path)

        monkeypatch.setattr(SimRegistry, "get", counted)
        commits = store.commit_count
        await asyncio.sleep(300)
        assert store.commit_count == commits
        assert len(reads) < 300

    play(9, scenario)


@pytest.mark.parametrize("seed", range(12))
def test_under_any_trouble_each_epoch_has_one_controller_and_the_trouble_over_there_is_one(seed: int) -> None:
    async def trouble(store: SimRegistryStore, candidates: list[Candidate], rng: Any) -> None:
        for _ in range(30):
            victim = rng.choice(candidates)
            name = victim.host.name
            match rng.choice(["crash", "cut", "expire", "drop", "heal"]):
                case "crash":
                    victim.host.crash(CrashKind.PROCESS_KILL)
                    await asyncio.sleep(rng.uniform(0, 8))
                    victim.boot()
                case "cut":
                    store.cut_off(name)
                case "expire":
                    store.expire(name)
                case "drop":
                    store.drop_connection(name)
                case "heal":
                    store.heal()
            await asyncio.sleep(rng.uniform(0, 3))
            if rng.random() < 0.5:
                store.heal()

    async def scenario(world: World, store: SimRegistryStore, candidates: list[Candidate]) -> None:
        await trouble(store, candidates, stream(seed, "nemesis"))
        store.heal()
        final = await elected(store, candidates)
        await asyncio.sleep(20)
        assert leader(store, candidates) is final
        assert [candidate for candidate in candidates if candidate.in_office] == [final]
        epochs = [term.epoch for candidate in candidates for term in candidate.terms]
        assert len(epochs) == len(set(epochs))
        assert max(epochs) == final.terms[-1].epoch == int(store.tree.nodes[CONTROLLER_EPOCH].data)

    play(seed, scenario, conditions=RegistryConditions(loss=0.05, lag_s=(0, 0.2), watch_delay_s=(0, 0.2)))
