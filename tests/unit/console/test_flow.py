"""Graphs of what flows where, and a pipeline's figures between two moments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odradek.console.model.pipeline_figures import (
    PipelineProgress,
    RunSample,
    measured,
    pipeline_runs,
    read_rates,
    written_rates,
)
from odradek.console.pages.sql.sources import plan_picture
from odradek.console.pictures.flow_graph import BOXES_MAX, FlowBox, flow_graph
from odradek.console.pictures.pipeline_graph import pipeline_graph
from odradek.model.ids import TopicPartition
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.outline import OutputOutline, ProgramKind, ProgramOutline, SourceOutline
from odradek.pipelines.status import Phase, PipelineStatus

IN, OUT = TopicPartition("in", 0), TopicPartition("out", 0)
PLAN = """\
write to topic totals, key KAFKA, value JSON
  stateful: aggregate by CUSTOMER
    native: read stream ORDERS from topic orders
    native: read table USERS from topic users
"""


def sample(at_ms: int, position: int, end: int = 0, pid: int = 1) -> RunSample:
    return RunSample(at_ms=at_ms, version=1, pid=pid, positions={IN: position}, ends={IN: 1_000, OUT: end})


def status(name: str, phase: Phase = Phase.RUNNING, **more: Any) -> PipelineStatus:
    reported = PipelineStatus(name=name, phase=phase, revision=1, version=1, since_ms=0, supervisor="s")
    return replace(reported, **more)


def document(name: str) -> PipelineDocument:
    return PipelineDocument(
        name=name, versions=(PipelineVersion(number=1, program="/p.py", checkpoint="p/v1"),)
    )


def test_rates_are_of_one_process_and_of_a_span_that_says_something() -> None:
    assert read_rates([]) == {}
    assert read_rates([sample(0, 10), sample(500, 900)]) == {}
    assert read_rates([sample(0, 10), sample(1_000, 20), sample(4_000, 50)]) == {"in": 10.0}
    assert read_rates([sample(0, 10), sample(9_000, 90, pid=2), sample(12_000, 120, pid=2)]) == {"in": 10.0}
    assert read_rates([sample(0, 90), sample(4_000, 50)]) == {"in": 0.0}, "it was reset"
    assert written_rates([sample(0, 0, 100), sample(4_000, 0, 140)], {"out"}) == {"out": 10.0}


def test_runs_that_fail_come_first_and_lag_is_known_or_not() -> None:
    statuses = {
        "a": status("a", inputs={"in": {0: 4}}),
        "c": status("c", Phase.FAILED),
        "d": status("d", Phase.BACKING_OFF),
    }
    runs = pipeline_runs(map(document, "abcd"), statuses)
    assert [run.name for run in runs] == ["c", "d", "a", "b"]
    run = measured(runs[2], {"in": {IN: 10}, "other": {OUT: 5}})
    assert (run.lag, run.lags, run.topic_lags()) == (6, {IN: 6}, {"in": 6})
    assert (runs[2].lag, runs[3].lag, runs[3].state) == (-1, -1, "unknown")
    assert measured(run, {"in": {IN: 1}}).lag == 0, "the topic was made again"
    assert (run.ends, measured(run, {}).lag) == ({IN: 10}, -1)


def test_a_graph_has_topics_queries_and_what_flows() -> None:
    outputs = tuple(
        OutputOutline(
            name=f"query {number}",
            topic="out",
            is_topic=True,
            sources=(SourceOutline(name="in", topic="in"),),
            states=(),
            sources_named=True,
            other_topics=(f"more.{number}",),
        )
        for number in range(2)
    )
    outline = ProgramOutline(kind=ProgramKind.STREAMS, outputs=outputs)
    run = PipelineProgress(
        key="p",
        document=document("p"),
        status=status("p", inputs={"in": {0: 4}}, outline=outline),
        lags={IN: 6},
        read_rates={"in": 3.0},
        written_rates={"out": 2.0},
    )
    graph = pipeline_graph(run, "{}/s".format, "lag {}".format)
    assert graph is not None
    assert [(node.name, node.details) for node in graph.nodes if node.box.link == "/topics/in"] == [
        ("in", "lag 6")
    ]
    assert sorted(node.name for node in graph.nodes) == [
        "in",
        "more.0",
        "more.1",
        "out",
        "query 0",
        "query 1",
    ]
    assert sorted(edge.text for edge in graph.edges) == ["", "", "2.0/s", "2.0/s", "3.0/s", "3.0/s"]
    assert pipeline_graph(replace(run, status=None), str, str) is None
    many = {f"topic-{number}": {0: 0} for number in range(10_000)}
    assert pipeline_graph(replace(run, status=status("p", inputs=many)), str, str) is None


def test_texts_on_lines_are_not_written_over_each_other() -> None:
    boxes = {name: FlowBox(kind="topic", name=name) for name in "abc"}
    graph = flow_graph(boxes, {("a", "b"): "1 234/s and more", ("a", "c"): "1 234/s and more"})
    assert graph is not None
    first, second = graph.edges
    assert (first.y != second.y) or abs(first.x - second.x) > 7 * len(first.text)


def test_cycles_are_drawn_and_too_large_graphs_are_not() -> None:
    boxes = {name: FlowBox(kind="topic", name=name) for name in ("a", "b")}
    graph = flow_graph(boxes, {("a", "b"): "", ("b", "a"): "", ("a", "a"): ""})
    assert graph is not None
    assert len(graph.edges) == 3
    assert all(0 <= node.x <= graph.width and 0 <= node.y <= graph.height for node in graph.nodes)
    assert flow_graph({}, {}) is None
    assert flow_graph({str(n): FlowBox(kind="topic", name=str(n)) for n in range(BOXES_MAX + 1)}, {}) is None


def test_a_plan_is_drawn_from_its_text() -> None:
    graph = plan_picture(PLAN)
    assert graph is not None
    assert [(node.name, node.box.kind, node.box.has_state) for node in graph.nodes] == [
        ("totals", "topic", False),
        ("aggregate", "table", True),
        ("orders", "topic", False),
        ("users", "table", False),
    ]
    assert [(edge.start, edge.end) for edge in graph.edges] == [
        ("aggregate", "totals"),
        ("orders", "aggregate"),
        ("users", "aggregate"),
    ]
    assert plan_picture("") is None
    assert plan_picture("  native: x\n" * 1_000) is None
    strange = plan_picture(" > [ PROJECT ] | Schema: `A` <b>\u202e")
    assert strange is not None
