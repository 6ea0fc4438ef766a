"""Pipelines in the console: what their topics say, with rates and lag; and the changes that a page makes."""

from __future__ import annotations

import asyncio
import html
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.scenarios.console.conftest import HOSTS, Browser, browser_of
from tests.scenarios.console.test_pages import seen

from odradek.client import Admin, NewTopic, Producer
from odradek.console.model import pipeline_reading
from odradek.console.records.masking import MaskRule, RecordMasks
from odradek.console.web.console import ANONYMOUS, ConsoleOptions
from odradek.pipelines.document import PIPELINES_TOPIC, Desired, PipelineDocument, PipelineVersion
from odradek.pipelines.outline import (
    OutputOutline,
    ProgramKind,
    ProgramOutline,
    SourceOutline,
    StateOutline,
    unknown_output,
)
from odradek.pipelines.status import STATUS_TOPIC, Phase, PipelineStatus, RecordCoordinates, RunFailure
from odradek.pipelines.store import PipelineStore
from odradek.pipelines.tables import make_topics
from odradek.testing import LocalBroker

EVIL = "<script>alert(1)</script>\u202e"
PATH = "/pipelines/pipeline"
PROGRAM = "/srv/totals <v2>.py"
OUTLINE = ProgramOutline(
    kind=ProgramKind.STREAMS,
    app="totals",
    outputs=(
        OutputOutline(
            name="out",
            topic="sums",
            is_topic=True,
            sources=(SourceOutline(name="flights", topic="flights"),),
            states=(StateOutline(name="by-origin", kind="aggregate", shape="x"),),
            sources_named=True,
        ),
    ),
)


def wanted(name: str, **more: Any) -> PipelineDocument:
    version = PipelineVersion(number=1, program=PROGRAM, args=(EVIL,), checkpoint=f"{name}/v1", made_ms=1_000)
    return replace(PipelineDocument(name=name, versions=(version,)), **more)


def status(name: str, phase: Phase = Phase.RUNNING, **more: Any) -> PipelineStatus:
    reported = PipelineStatus(
        name=name, phase=phase, revision=1, version=1, since_ms=1_000, supervisor="host", pid=7
    )
    return replace(reported, **more)


def publish(broker: LocalBroker, key: str, reported: PipelineStatus) -> None:
    with Producer(broker.address) as producer:
        producer.send(STATUS_TOPIC, reported.to_bytes(), key=key.encode(), partition=0)


@pytest.fixture
async def pipelines(broker: LocalBroker, admin: Admin, browser: Browser) -> AsyncIterator[None]:
    """A pipeline that runs, with a version that is being rebuilt, one that fails, and one that cannot be read."""

    def fill() -> None:
        admin.create_topics([NewTopic("flights", 2), NewTopic("sums", 1)])
        version = replace(wanted("totals").current, number=2, checkpoint="totals/v2", suffix=".v2")
        with PipelineStore(broker.address) as store:
            make_topics(store.admin)
            secret = ("spark.hadoop.fs.s3a.secret.key", "hush")
            document = wanted("totals", candidate=version, conf=(secret,)).changed(5_000, EVIL, "run")
            store.change("totals", lambda _: document)
            store.change("copy", lambda _: wanted("copy").changed(5_000, "bob", "run"))
        with Producer(broker.address) as producer:
            producer.send(PIPELINES_TOPIC, b"{", key=b"broken", partition=0)
            for number in range(100):
                producer.send("flights", b"x", partition=number % 2)
        running = status("totals", inputs={"flights": {0: 40, 1: 30}}, outline=OUTLINE, log=("batch 1", EVIL))
        publish(broker, "totals", running)
        publish(broker, "totals~v2", replace(running, version=2, inputs={"flights": {0: 1, 1: 2}}))
        place = RecordCoordinates(topic="flights", partition=1, offset=7)
        failure = RunFailure(line=f"ValueError: {EVIL}", at_ms=4_000, place=place)
        failing = status("copy", Phase.BACKING_OFF, failure=failure, failures_in_a_row=3)
        publish(broker, "copy", failing)

    await asyncio.to_thread(fill)
    await seen(browser, "sums")
    yield
    topics = [PIPELINES_TOPIC, STATUS_TOPIC, "flights", "sums"]
    await asyncio.to_thread(admin.delete_topics, topics)


async def test_with_masks_failures_and_logs_of_pipelines_on_these_topics_are_hidden(
    broker: LocalBroker, pipelines: None
) -> None:
    masks = RecordMasks([MaskRule(topics=("flights",), value=True)])
    async with browser_of(ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, masks=masks)) as reader:
        await seen(reader, "sums")
        for path in ("/pipelines", f"{PATH}?name=copy"):
            text = (await reader.get(path)).text
            assert "ValueError" not in text
            assert "may quote a masked record" in text


async def test_a_cluster_without_pipelines_says_how_to_begin(browser: Browser) -> None:
    page = await browser.get("/pipelines")
    assert (page.status_code, "odradek pipeline run totals.py" in page.text) == (200, True)
    assert (await browser.get(f"{PATH}?name=none")).status_code == 404


async def test_pipelines_are_listed_with_lag_and_failure(browser: Browser, pipelines: None) -> None:
    page = await browser.get("/pipelines")
    assert page.status_code == 200
    assert "odradek pipelines serve" in page.text, "no supervisor runs"
    rows = [html.unescape(row) for row in page.text.split("<tr>")[2:]]
    assert ["copy" in rows[0], "failed, starts again" in rows[0]] == [True, True]
    assert "[flights-1 at offset 7]" in rows[0]
    assert ['<td class="number">30</td>' in rows[1], '<td class="number">97</td>' in rows[2]] == [True, True]
    assert "being rebuilt" in rows[2]
    assert "the document of pipeline 'broken'" in html.unescape(page.text)
    assert "<script>alert" not in page.text
    assert "copy" not in (await browser.get("/pipelines?search=total")).text


async def test_a_pipeline_has_its_graph_versions_and_log(browser: Browser, pipelines: None) -> None:
    page = await browser.get(PATH, params={"name": "totals"})
    assert page.status_code == 200
    text = html.unescape(page.text)
    for part in (
        'href="/topics/flights"',
        'href="/topics/sums"',
        "by-origin",
        "lag 30",
        "batch 1",
        "Version 2",
    ):
        assert part in text
    assert "odradek pipeline upgrade totals NEW.py --dry-run" in text
    assert "(hidden)" in text
    for hidden in ("hush", "<script>alert", "\u202e"):
        assert hidden not in page.text
    assert (await browser.get(PATH, params={"name": "broken"})).status_code == 502


async def test_a_pipeline_that_runs_again_shows_its_failure_as_a_past_one(
    broker: LocalBroker, browser: Browser, pipelines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_reading, "FRESH_MS", 0)
    failing = (await browser.get(PATH, params={"name": "copy"})).text
    assert "Failed at 1970-01-01 00:00:04.000 (UTC), 3 times in a row:" in failing
    mended = status("copy", failure=RunFailure(line="ValueError: x", at_ms=4_000))
    await asyncio.to_thread(publish, broker, "copy", mended)
    async with asyncio.timeout(60):
        while "times in a row" in (text := (await browser.get(PATH, params={"name": "copy"})).text):
            await asyncio.sleep(0.1)
    assert "It has not failed since 1970-01-01 00:00:04.000 (UTC)." in text


async def test_rates_come_from_two_moments(
    broker: LocalBroker, browser: Browser, pipelines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_reading, "FRESH_MS", 0)
    reader = (await browser.console.model_of(ANONYMOUS)).pipelines
    first = (await browser.console.background.run(reader.read())).of("totals")[0]
    assert (first.rate, first.lag) == (None, 30)
    moved = status("totals", inputs={"flights": {0: 50, 1: 50}}, outline=OUTLINE)
    await asyncio.to_thread(publish, broker, "totals", moved)
    async with asyncio.timeout(60):
        while not (run := (await browser.console.background.run(reader.read())).of("totals")[0]).rate:
            await asyncio.sleep(0.1)
    assert run.lag == 0
    assert 0 < run.read_rates["flights"] <= 15, "30 records in at least 2 s"
    assert run.written_rates == {"sums": 0.0}


async def test_a_pipeline_of_pyspark_is_drawn_by_its_inputs(
    broker: LocalBroker, browser: Browser, pipelines: None
) -> None:
    outline = ProgramOutline(kind=ProgramKind.PYSPARK, outputs=(unknown_output("first <b>"),))
    reported = status("copy", inputs={"flights": {0: 50}}, outline=outline)
    await asyncio.to_thread(publish, broker, "copy", reported)
    page = await browser.get(PATH, params={"name": "copy"})
    assert 'href="/topics/flights"' in page.text
    assert "first &lt;b&gt;" in page.text


async def test_a_document_of_a_stranger_does_not_make_a_page_without_end(
    broker: LocalBroker, browser: Browser, pipelines: None
) -> None:
    def write() -> None:
        large = wanted("large", conf=tuple((f"spark.x{number}", "y" * 50) for number in range(5_000)))
        for _ in range(50):
            large = large.changed(5_000, "m" * 2_000, "w" * 2_000)
        inputs = {"flights": dict.fromkeys(range(20000), 0)}
        with Producer(broker.address) as producer:
            producer.send(PIPELINES_TOPIC, large.to_bytes(), key=b"large", partition=0)
        publish(broker, "large", status("large", inputs=inputs, log=("l" * 100_000,)))

    await asyncio.to_thread(write)
    page = await browser.get(PATH, params={"name": "large"})
    assert page.status_code == 200
    assert len(page.content) < 500_000
    assert "19 800 more partitions" in page.text.replace("\u202f", " ")


async def test_changes_are_made_by_buttons_and_some_after_a_question(
    broker: LocalBroker, browser: Browser, pipelines: None
) -> None:
    def document() -> PipelineDocument:
        with PipelineStore(broker.address) as store:
            return store.document("totals")

    async def press(verb: str, **fields: str) -> str:
        response = await browser.submit(PATH, on=f"{PATH}?name=totals", name="totals", verb=verb, **fields)
        assert response.status_code in (200, 303), response.text
        return response.text

    await press("pause")
    changed = await asyncio.to_thread(document)
    assert (changed.desired, changed.history[-1].by) == (Desired.PAUSED, "anyone in the console")
    assert 'value="resume"' in (await browser.get(f"{PATH}?name=totals")).text
    assert "Its process ends" in await press("stop")
    assert (await asyncio.to_thread(document)).desired is Desired.PAUSED
    await press("stop", sure="1")
    assert (await asyncio.to_thread(document)).desired is Desired.STOPPED
    refused = await browser.submit(PATH, on=f"{PATH}?name=totals", name="totals", verb="pause")
    assert (refused.status_code, "pipeline totals is stopped" in refused.text) == (502, True)
    assert "takes over now" in await press("swap")
    await press("swap", sure="1")
    changed = await asyncio.to_thread(document)
    assert (changed.current.number, changed.candidate) == (2, None)
    unknown = await browser.submit(PATH, on=f"{PATH}?name=totals", name="totals", verb="delete")
    assert unknown.status_code == 400


async def test_a_read_only_console_changes_no_pipeline(
    broker: LocalBroker, browser: Browser, pipelines: None
) -> None:
    options = ConsoleOptions(bootstrap=broker.address, hosts=HOSTS, read_only=True)
    async with browser_of(options) as reader:
        page = await reader.get(f"{PATH}?name=totals")
        assert 'name="verb"' not in page.text
        fields = {"name": "totals", "verb": "stop", "sure": "1"}
        assert (await reader.submit(PATH, on=f"{PATH}?name=totals", **fields)).status_code == 403
