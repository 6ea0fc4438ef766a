"""Thousands of topics: pages are rendered from the model, and do not grow with the cluster."""

from __future__ import annotations

from tests.interop.console.scripted_cluster import PARTITIONS, ScriptedCluster, topic_name
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, browser_of

from odradek.console.web.console import ANONYMOUS, ConsoleOptions

TOPICS = 2_000
PAGE_BYTES_MAX = 100_000
READ_S = 120.0


async def test_pages_of_many_topics_are_small_and_shown_while_the_cluster_is_away() -> None:
    cluster = ScriptedCluster(TOPICS, dead=[4])
    async with browser_of(ConsoleOptions(bootstrap=await cluster.start(), hosts=HOSTS)) as browser:
        model = await browser.console.model_of(ANONYMOUS)
        await until(lambda: model.snapshot.is_read, seconds=READ_S)
        assert len(model.snapshot.partitions) == TOPICS * PARTITIONS
        await cluster.stop()
        overview = await browser.get("/")
        assert overview.status_code == 200
        assert "2\u202f000" in overview.text
        assert "Broker 4 is dead" in overview.text or "The cluster does not answer" in overview.text
        first = await browser.get("/topics")
        last = await browser.get("/topics", params={"page": "99999"})
        searched = await browser.get("/topics", params={"search": topic_name(TOPICS - 1)})
        assert "Page 40 of 40" in last.text
        assert f'href="/topics/{topic_name(TOPICS - 1)}"' in searched.text
        sizes = [len(page.content) for page in (overview, first, last, searched)]
        assert max(sizes) < PAGE_BYTES_MAX, sizes
    await cluster.stop()  # whatever connected while it stopped
