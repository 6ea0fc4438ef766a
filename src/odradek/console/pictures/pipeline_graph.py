"""A pipeline as a graph: topics that it reads, its queries with their state, topics that it writes to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from odradek.console.model.pipeline_figures import PipelineProgress
from odradek.console.pictures.flow_graph import FlowBox, FlowGraph, flow_graph

_NAMES_MAX: Final = 6
_TOPICS_MAX: Final = 200
"""A program with more inputs than this is not drawn."""
RateText = Callable[[float], str]
"""Writes records a second."""
LagText = Callable[[int], str]
"""Writes the lag of a topic."""


def pipeline_graph(run: PipelineProgress, rate_text: RateText, lag_text: LagText) -> FlowGraph | None:
    """Returns the graph of a run; None where nothing is known of its program, or where it is too large to be drawn."""
    boxes: dict[str, FlowBox] = {}
    edges: dict[tuple[str, str], str] = {}
    lags = run.topic_lags()
    inputs = sorted(run.status.inputs or ()) if run.status is not None else []
    if len(inputs) > _TOPICS_MAX:
        return None

    def reads(topic: str, query: str) -> None:
        lag = lags.get(topic, 0)
        boxes.setdefault(f"in:{topic}", _topic(topic, lag_text(lag) if lag else ""))
        edges[f"in:{topic}", query] = _rate(run.read_rates, topic, rate_text)

    unnamed = [output.name for output in run.outputs if not output.sources]
    for output in run.outputs:
        if not output.sources:
            continue
        query = f"query:{output.name}"
        states = [state.name for state in output.states]
        boxes[query] = FlowBox(
            kind="program",
            name=output.name,
            details=_names(states),
            full=f"{output.name}: {', '.join(states)}" if states else output.name,
            has_state=bool(states),
        )
        for source in output.sources:
            reads(source.topic, query)
        for topic in output.topics:
            boxes.setdefault(f"out:{topic}", _topic(topic))
            edges[query, f"out:{topic}"] = _rate(run.written_rates, topic, rate_text)
    if (unnamed or not run.outputs) and (inputs or unnamed):
        boxes["program"] = FlowBox(kind="program", name=run.name, details=_names(unnamed))
        for topic in inputs:
            reads(topic, "program")
    return flow_graph(boxes, edges)


def _topic(name: str, details: str = "") -> FlowBox:
    return FlowBox(kind="topic", name=name, details=details, link=f"/topics/{quote(name, safe='')}")


def _rate(rates: Mapping[str, float], topic: str, rate_text: RateText) -> str:
    return rate_text(rates[topic]) if topic in rates else ""


def _names(names: list[str]) -> str:
    more = f" +{len(names) - _NAMES_MAX}" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more
