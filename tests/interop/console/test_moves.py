"""Rebalance, drain and elections through the console's pages, on brokers that are processes of their own."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of, token_of

from odradek.client import Admin, ConfigResource, NewTopic, Producer
from odradek.client.admin.moves import THROTTLE_RATES, THROTTLED_REPLICAS
from odradek.console.web.console import ConsoleOptions
from odradek.testing import Cluster

pytestmark = pytest.mark.interop
TOPIC = "heavy"
PARTITIONS = 4


@contextmanager
def loaded_on_one() -> Iterator[Cluster]:
    """Two brokers; the first has all partitions."""
    with Cluster(brokers=2) as running:
        with Admin(running.address) as admin:
            first = sorted(broker.broker_id for broker in admin.describe_cluster().brokers)[0]
            admin.create_topics([NewTopic(TOPIC, assignments=[[first]] * PARTITIONS)])
        with Producer(running.address) as producer:
            for number in range(200):
                producer.send(TOPIC, bytes(10_000), partition=number % PARTITIONS)
        yield running


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with loaded_on_one() as running:
        yield running


@pytest.fixture
def fresh_cluster() -> Iterator[Cluster]:
    """Nothing has been moved, whatever test came before."""
    with loaded_on_one() as running:
        yield running


@pytest.fixture
def fresh_admin(fresh_cluster: Cluster) -> Iterator[Admin]:
    with Admin(fresh_cluster.address) as client:
        yield client


@pytest.fixture
async def fresh_browser(fresh_cluster: Cluster) -> AsyncIterator[Browser]:
    async with browser_of(ConsoleOptions(bootstrap=fresh_cluster.address, hosts=HOSTS)) as running:
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(cluster.address) as client:
        yield client


@pytest.fixture
async def browser(cluster: Cluster) -> AsyncIterator[Browser]:
    async with browser_of(ConsoleOptions(bootstrap=cluster.address, hosts=HOSTS)) as running:
        yield running


@pytest.fixture(autouse=True)
def _callbacks_are_short() -> None:
    """Takes the place of the check of callbacks: the console has a thread for callbacks that decode large answers."""


def replicas(admin: Admin) -> list[tuple[int, ...]]:
    partitions = admin.describe_topics([TOPIC])[TOPIC].partitions
    return [tuple(partition.replicas) for partition in partitions]


def plan_of(page: str) -> str:
    match = re.search(r'<textarea name="plan" hidden>(.*?)</textarea>', page, re.DOTALL)
    assert match is not None, page
    return html.unescape(match[1])


async def carried_out(browser: Browser, path: str, **fields: str) -> None:
    page = await browser.get(path)
    begun = await browser.post(
        "/cluster/plan", token=token_of(page.text), plan=plan_of(page.text), sure="1", **fields
    )
    assert begun.headers["location"] == "/cluster?notice=moves_begun", begun.text
    run = await until(lambda: browser.console.moves.last, holds=lambda run: run is None or run.is_over)
    assert run is not None
    assert (run.state, run.problems, run.left) == ("done", [], [])


async def test_a_rebalance_moves_what_its_plan_showed_and_takes_its_throttle_away(
    fresh_browser: Browser, fresh_admin: Admin
) -> None:
    before = await asyncio.to_thread(replicas, fresh_admin)
    page = await fresh_browser.get("/cluster/plan")
    lines = [line.split() for line in plan_of(page.text).splitlines() if line.startswith(f"{TOPIC} ")]
    assert len(lines) == PARTITIONS // 2
    assert await asyncio.to_thread(replicas, fresh_admin) == before, "a plan moves nothing"
    assert (
        await fresh_browser.post("/cluster/plan", token=token_of(page.text), plan="", throttle="0")
    ).status_code == 400
    await carried_out(fresh_browser, "/cluster/plan", throttle="100")
    after = await asyncio.to_thread(replicas, fresh_admin)
    for _, partition, _, then, _ in lines:
        assert after[int(partition)] == tuple(map(int, then.split(",")))
    resources = [ConfigResource.topic(TOPIC)]
    resources += [ConfigResource.broker(brokers[0]) for brokers in after]
    settings = await asyncio.to_thread(fresh_admin.describe_configs, resources)
    for entries in settings.values():
        for name in (*THROTTLE_RATES, *THROTTLED_REPLICAS):
            assert name not in entries or entries[name].value in ("", str(2**63 - 1), None), name
    shown = await fresh_browser.get("/cluster")
    assert "not begun: 0." in shown.text


async def test_a_broker_is_drained_and_the_time_line_says_what_moved(browser: Browser, admin: Admin) -> None:
    await browser.get("/cluster")
    drained = max(brokers[0] for brokers in await asyncio.to_thread(replicas, admin))
    drain = await browser.get(f"/cluster/plan?drain={drained}")
    assert f"Drain broker {drained}" in drain.text
    moved = [line.split() for line in plan_of(drain.text).splitlines()]
    assert {line[2] for line in moved} == {str(drained)}
    await carried_out(browser, f"/cluster/plan?drain={drained}")
    assert drained not in {
        broker for brokers in await asyncio.to_thread(replicas, admin) for broker in brokers
    }
    await until(
        lambda: browser.get("/cluster"),
        holds=lambda page: "Partitions that have other replicas" in page.text,
        every_s=0.2,
    )
    assert (await browser.get(f"/cluster/plan?drain={drained}")).text.count("Nothing has to move.") == 1
    assert (await browser.get("/cluster/plan?drain=77")).status_code == 400
    assert (await browser.get("/cluster/plan?drain=x")).status_code == 400


async def test_what_cannot_be_moved_is_named_and_holds_nothing_up(browser: Browser, admin: Admin) -> None:
    before = await asyncio.to_thread(replicas, admin)
    other = 3 - before[0][0]
    text = f"{TOPIC} 0 {before[0][0]} {other} 0\nno-such-topic 0 1 1 0"
    token = token_of((await browser.get("/cluster")).text)
    begun = await browser.post("/cluster/plan", token=token, plan=text, sure="1")
    assert begun.status_code == 303, begun.text
    run = await until(lambda: browser.console.moves.last, holds=lambda run: run is None or run.is_over)
    assert run is not None
    assert run.state == "done"
    assert any("no-such-topic" in problem for problem in run.problems)
    assert (await asyncio.to_thread(replicas, admin))[0] == (other,)


async def test_nonsense_for_a_plan_is_refused(browser: Browser) -> None:
    token = token_of((await browser.get("/cluster")).text)
    for plan in ("", "x", f"{TOPIC} 0 1", f"{TOPIC} zero 1 2 3"):
        assert (await browser.post("/cluster/plan", token=token, plan=plan)).status_code == 400
    assert browser.console.moves.last is None


async def test_a_move_is_cancelled(browser: Browser, admin: Admin, cluster: Cluster) -> None:
    def prepare() -> None:
        admin.create_topics([NewTopic("stays", assignments=[[1]])])
        with Producer(cluster.address) as producer:
            for _ in range(300):
                producer.send("stays", bytes(50_000), partition=0)

    await asyncio.to_thread(prepare)
    token = token_of((await browser.get("/cluster")).text)
    begun = await browser.post(
        "/cluster/plan", token=token, plan="stays 0 1 2 15000000", throttle="1", sure="1"
    )
    assert begun.status_code == 303, begun.text
    shown = await until(lambda: browser.get("/cluster"), holds=lambda page: "stays-0" in page.text)
    assert "/cluster/cancel" in shown.text
    assert "moves are cancelled: 1" in (await browser.get("/cluster/cancel")).text
    assert (await browser.post("/cluster/cancel", token=token, sure="1")).status_code == 303
    await until(lambda: browser.console.moves.last, holds=lambda run: run is None or run.is_over)
    partitions = (await asyncio.to_thread(admin.describe_topics, ["stays"]))["stays"].partitions
    assert partitions[0].replicas == (1,)


async def test_a_dead_broker_is_drained_with_a_throttle_and_its_end_is_on_the_time_line() -> None:
    """Its settings cannot be changed, so the throttle leaves it out."""
    with Cluster(brokers=3, settings={"broker.session.timeout.ms": "6000"}) as cluster:

        def prepare() -> None:
            with Admin(cluster.address) as admin:
                admin.create_topics([NewTopic("pair", assignments=[[3, 1], [1, 3]])])

        await asyncio.to_thread(prepare)
        bootstrap = cluster.broker(1).address
        async with browser_of(ConsoleOptions(bootstrap=bootstrap, hosts=HOSTS)) as browser:
            await browser.get("/cluster")
            cluster.broker(3).kill()
            for line in ("Broker 3 is gone.", "no longer in sync"):
                shown = await until(
                    lambda: browser.get("/cluster"),
                    holds=lambda page, line=line: line in page.text,
                    every_s=0.3,
                )
            assert "/cluster/plan?drain=3" in shown.text
            page = await browser.get("/cluster/plan?drain=3")
            lines = [line for line in plan_of(page.text).splitlines() if line.startswith("pair ")]
            assert len(lines) == 2
            token, plan = token_of(page.text), "\n".join(lines)
            begun = await browser.post("/cluster/plan", token=token, plan=plan, throttle="10", sure="1")
            assert begun.status_code == 303, begun.text
            run = await until(
                lambda: browser.console.moves.last, holds=lambda run: run is None or run.is_over
            )
            assert run is not None
            assert run.state == "done", run.problems

        def held() -> set[int]:
            with Admin(bootstrap) as admin:
                partitions = admin.describe_topics(["pair"])["pair"].partitions
                return {broker for partition in partitions for broker in partition.replicas}

        assert await asyncio.to_thread(held) == {1, 2}
