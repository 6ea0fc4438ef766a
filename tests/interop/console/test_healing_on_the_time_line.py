"""A broker of three dies: the time line of the console shows that it is gone, and its replicas made again on the others."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of

from odradek.client import Admin, NewTopic, Producer
from odradek.console.web.console import ConsoleOptions
from odradek.testing import Cluster

pytestmark = pytest.mark.interop
TOPIC = "heavy"
DEAD = 3
WAIT_S = 120
SETTINGS = {
    "odradek.healing.delay.ms": "8000",  # the console has seen by then that the broker is gone
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@pytest.fixture(autouse=True)
def _callbacks_are_short() -> None:
    """Takes the place of the check of callbacks: the console has a thread for callbacks that decode large answers."""


def replicas(admin: Admin) -> list[set[int]]:
    partitions = admin.describe_topics([TOPIC])[TOPIC].partitions
    return [set(partition.replicas) for partition in partitions]


def events_of(page: str) -> list[str]:
    part = page.partition('id="time-line"')[2].partition("</section>")[0]
    return [" ".join(re.sub(r"<[^>]*>", " ", event).split()) for event in part.split("<li")[1:]]


async def event_seen(browser: Browser, start: str) -> str:
    """Returns the first event that begins so, once the page has one."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for event in events_of((await browser.get("/cluster")).text):
                if start in event:
                    return event
            await asyncio.sleep(0.2)


async def test_a_dead_broker_and_the_healing_of_its_replicas_are_on_the_time_line() -> None:
    with Cluster(brokers=3, settings=SETTINGS) as cluster, Admin(cluster.address) as admin:
        spread = [[1, 2], [2, DEAD], [DEAD, 1], [1, DEAD]]

        def fill() -> None:
            admin.create_topics([NewTopic(TOPIC, assignments=spread)])
            with Producer(cluster.address) as producer:
                for number in range(40):
                    producer.send(TOPIC, bytes(10_000), partition=number % len(spread))

        await asyncio.to_thread(fill)
        async with browser_of(ConsoleOptions(bootstrap=cluster.address, hosts=HOSTS)) as browser:
            async with asyncio.timeout(WAIT_S):
                while f'href="/topics/{TOPIC}"' not in (await browser.get("/topics")).text:
                    await asyncio.sleep(0.2)
            before = " ".join(events_of((await browser.get("/cluster")).text))
            assert "Heal" not in before, "nothing has happened"
            await asyncio.to_thread(cluster.broker(DEAD).kill)
            await event_seen(browser, f"Broker {DEAD} is gone.")
            healed = await event_seen(
                browser, f"Healed: other brokers have the replicas of dead broker {DEAD}"
            )
            assert TOPIC in healed
            overview = (await browser.get("/")).text
            assert f"Healed: other brokers have the replicas of dead broker {DEAD}" in overview
            assert await asyncio.to_thread(replicas, admin) == [{1, 2}] * len(spread)
