"""What pages say of a cluster that answers in part: a dead broker among those of a move, directories that do not come."""

from __future__ import annotations

import pytest
from tests.interop.console.scripted_cluster import COPIED, RECEIVER, ScriptedCluster, topic_name
from tests.kit.waiting import until
from tests.scenarios.console.conftest import HOSTS, browser_of
from tests.unit.client.conftest import SILENCE

from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.model.ids import TopicPartition

TOPICS = 12
DEAD = 4
"""It has a replica of the third topic, which is moved to the receiver."""
READ_S = 60.0


async def test_moves_show_what_was_copied_and_ask_no_dead_broker(caplog: pytest.LogCaptureFixture) -> None:
    cluster = ScriptedCluster(TOPICS, dead=[DEAD])
    async with browser_of(ConsoleOptions(bootstrap=await cluster.start(), hosts=HOSTS)) as browser:
        model = await browser.console.model_of(ANONYMOUS)
        await until(lambda: model.snapshot.is_read, seconds=READ_S)
        moves, progress = await browser.console.background.run(model.moves.get())
        assert DEAD in moves[TopicPartition(topic_name(2), 0)].replicas
        assert {(row.tp.topic, row.broker): round(row.per_mille, -1) for row in progress} == {
            (topic_name(number), RECEIVER): round(1000 * share) for number, share in enumerate(COPIED)
        }
    await cluster.stop()
    assert f"broker {DEAD} is not in the cluster" not in caplog.text


async def test_not_everything_is_in_order_while_a_part_is_not_read_yet() -> None:
    cluster = ScriptedCluster(TOPICS)
    cluster.broker.on["DescribeLogDirs"] = lambda _: SILENCE
    async with browser_of(ConsoleOptions(bootstrap=await cluster.start(), hosts=HOSTS)) as browser:
        model = await browser.console.model_of(ANONYMOUS)
        await until(lambda: model.snapshot.is_read, seconds=READ_S)
        page = await browser.get("/")
        assert "Nothing is wrong so far. Not read yet:" in page.text
        assert "The directories are being read." in page.text
        assert "Everything is in order." not in page.text
    await cluster.stop()
