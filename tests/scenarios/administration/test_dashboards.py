"""Dashboards fill by themselves: published ones, and those of `deploy/grafana`; alert rules ask for what there is."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families as prometheus_text
from tests.kit.requests import batch_of
from tests.scenarios.administration.published_dashboards import KNOWN_MISSING, PUBLISHED, SHARE_MIN
from tests.scenarios.administration.test_metrics import Samples, commit, listen, scrape
from tests.scenarios.groups.test_classic_groups import Member as ClassicMember
from tests.scenarios.transactions.transactional_producer import EPOCHS, TransactionalProducer, coordinated

from odradek.broker.metrics.listener import MetricsListener
from odradek.pipelines.status import Phase, PipelineStatus, RunFailure, pipeline_families, supervised
from odradek.spark.query_figures import QueryFigures, SessionFigures, StateFigures
from odradek.sql.queries.channel import StartArchive
from odradek.sql.queries.engine import SqlEngine, SupervisedQuery
from odradek.sql.queries.engine_families import engine_families
from odradek.telemetry.exposition import chosen_type, written
from odradek.telemetry.metrics import Family
from odradek.views.freshness import Freshness, PartitionFreshness, ViewStatus
from odradek.views.view_families import view_families

DEPLOY: Final = Path(__file__).parents[3] / "deploy"
BOARDS: Final = sorted((DEPLOY / "grafana").glob("*.json"))
_METRIC: Final = re.compile(r"\b((?:kafka|odradek|process)_[a-z0-9_]+)(\{[^}]*\})?")
_MATCHER: Final = re.compile(r"([a-z_]+)(=~|!=|!~|=)")
_BY: Final = re.compile(r"\bby \(([^)]*)\)")
_LEGEND: Final = re.compile(r"\{\{(\w+)\}\}")
_OF_PROMETHEUS: Final = {"instance", "job"}


@pytest.fixture
async def opened() -> AsyncIterator[list[MetricsListener]]:
    listeners: list[MetricsListener] = []
    yield listeners
    for listener in listeners:
        await asyncio.to_thread(listener.close)


async def busy_broker(scene: Any, opened: list[MetricsListener]) -> Samples:
    """Returns a scrape of a broker with traffic, a group that lags, and a transaction."""
    broker = await scene.start(group_initial_rebalance_delay_ms="0", odradek_slow_request_ms="1")
    wire = await scene.connect()
    await wire.create("flights", partitions=2)
    await wire.produce("flights", [b"a", b"b", b"c"])
    await wire.produce("nowhere", [b"a"])
    await wire.fetch("flights", 0)
    await wire.find_coordinator("readers")
    member = ClassicMember(wire, group="readers")
    await member.join()
    await member.sync({member.member_id: b"x"})
    await wire.ask(commit(member.group, member.member_id, "flights", 0, 1), 8)
    await coordinated(wire)
    producer = TransactionalProducer(wire, batch_of, "writer", EPOCHS)
    assert await producer.init() == 0
    await producer.add("flights", 1)
    return await scrape(listen(broker, opened))


def labels_of(samples: Samples, name: str) -> list[dict[str, str]]:
    return [dict(texts) for sample, texts in samples if sample == name]


def has(samples: Samples, name: str, wanted: dict[str, str]) -> bool:
    return any(
        all(label in texts and value in ("", texts[label]) for label, value in wanted.items())
        for texts in labels_of(samples, name)
    )


async def test_published_dashboards_fill(scene: Any, opened: list[MetricsListener]) -> None:
    samples = await busy_broker(scene, opened)
    asked = [(name, wanted) for board in PUBLISHED.values() for name, wanted in board.items()]
    missing = {name for name, wanted in asked if not has(samples, name, wanted)}
    assert missing == KNOWN_MISSING
    share = sum(name not in missing for name, _ in asked) / len(asked)
    assert len(PUBLISHED) >= 4
    assert share >= SHARE_MIN


def queries_of(board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Each query with its legend; those of variables have none."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            inside = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            assert inside is not None
            yield f"sum by ({inside[2]}) ({inside[1]})", ""


def of_queries() -> list[Family]:
    """Returns the families of a query, of the SQL server's engine, and of a view."""
    query = QueryFigures(
        name="totals",
        batch_count=1,
        output_rows_count=1,
        phases_ms={"addBatch": 1, "triggerExecution": 2},
        state=(StateFigures(operator="0-x", rows_count=1, updated_rows_count=1, memory_bytes=1),),
        watermark_ms=1,
        offsets_behind=0,
        progressed_at_ms=1,
    )
    partition = PartitionFreshness(
        partition=0, applied_offset=1, end_offset=2, record_timestamp_ms=1, applied_at_ms=1, looked_at_ms=1
    )
    view = Freshness(topic="totals", status=ViewStatus.LIVE, partitions=(partition,))
    engine = SqlEngine()
    engine.wanted["CTAS_1"] = SupervisedQuery(
        StartArchive(query_id="CTAS_1", start=lambda spark, checkpoint: None)
    )
    engine.figures = SessionFigures(queries=(query,))
    return [*engine_families(engine, 1_000), *view_families({"totals": view})]


def of_pipelines() -> Samples:
    """Returns the samples of a supervisor with a pipeline that failed."""
    status = PipelineStatus(
        name="totals",
        phase=Phase.BACKING_OFF,
        revision=1,
        version=1,
        since_ms=0,
        supervisor="me",
        failure=RunFailure(line="no JSON", at_ms=0),
        failures_in_a_row=2,
        batch_ms=10.0,
    )
    text = written(
        [*pipeline_families([("totals", status)], 1_000), supervised(True), *of_queries()], chosen_type("")
    )
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in prometheus_text(text.decode())
        for sample in family.samples
    }


async def test_dashboards_of_ours_ask_for_what_there_is(scene: Any, opened: list[MetricsListener]) -> None:
    samples = await busy_broker(scene, opened)
    samples |= of_pipelines()
    assert [path.stem for path in BOARDS] == ["cluster", "groups", "pipelines", "topics"]
    unanswered = []
    for path in BOARDS:
        board = json.loads(path.read_text())
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        for query, legend in queries_of(board):
            names = _METRIC.findall(query)
            assert names, query
            for name, matchers in names:
                wanted = {label for label, _ in _MATCHER.findall(matchers)}
                if not _answers(samples, name, matchers, wanted):
                    unanswered.append(query)
            grouped = {label.strip() for group in _BY.findall(query) for label in group.split(",")}
            shown = set(_LEGEND.findall(legend))
            if grouped:
                assert shown <= grouped, f"{query} shows {shown}"
            for label in (grouped or shown) - _OF_PROMETHEUS:
                assert any(label in texts for name, _ in names for texts in labels_of(samples, name)), query
    assert unanswered == []


def _answers(samples: Samples, name: str, matchers: str, wanted: set[str]) -> bool:
    """Whether a series matches: `topic=""` stands for one without that label, and a variable for any value."""
    for texts in labels_of(samples, name):
        absent = {label for label in wanted if f'{label}=""' in matchers}
        if all(label in texts for label in wanted - absent) and not any(label in texts for label in absent):
            exact = re.findall(r'([a-z_]+)="([^"$]+)"', matchers)
            if all(texts.get(label) == value for label, value in exact):
                return True
    return name in OF_TROUBLE


OF_TROUBLE: Final = {"kafka_server_socket_server_metrics_failed_authentication_total"}
"""Series that there are once something failed."""
ELSEWHERE: Final = {
    "odradek_certificate_expires_seconds",
    "odradek_delegation_token_expires_seconds",
}
"""Series of listeners with TLS and of clusters with tokens; a test of their own shows them."""


async def test_every_metric_is_named_in_the_documentation(scene: Any, opened: list[MetricsListener]) -> None:
    """A name is there in full, or after "…" where it shares its beginning with another name."""
    samples = await busy_broker(scene, opened) | of_pipelines()
    words = set(re.findall(r"…?[a-z_]\w+", (DEPLOY.parent / "docs" / "metrics.md").read_text()))
    endings = tuple(word[1:] for word in words if word.startswith("…"))
    unnamed = set()
    for name in {name for name, _ in samples if name.startswith(("kafka_", "odradek_"))}:
        spellings = {name, base := re.sub("_(bucket|count|sum)$", "", name), base.removesuffix("_total")}
        if not spellings & words and not any(spelling.endswith(endings) for spelling in spellings):
            unnamed.add(name)
    assert unnamed == set()


async def test_alerts_ask_for_what_there_is(scene: Any, opened: list[MetricsListener]) -> None:
    samples = await busy_broker(scene, opened) | of_pipelines()
    rules = (DEPLOY / "prometheus" / "alerts.yml").read_text()
    names = {name for name, _ in _METRIC.findall(rules)} - OF_TROUBLE - ELSEWHERE
    assert len(names) > 10
    assert {name for name in names if not labels_of(samples, name)} == set()
