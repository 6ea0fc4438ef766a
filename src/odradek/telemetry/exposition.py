"""Families as text: Prometheus' format 0.0.4, and OpenMetrics 1.0.0.
https://prometheus.io/docs/instrumenting/exposition_formats

A scrape of 10,000 partitions has more than 100,000 samples, so this is one pass that joins strings (decision 0078).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from odradek.model.java_numbers import finite_number
from odradek.telemetry.metrics import Family, Histogram, MetricKind

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPEN_METRICS_TYPE: Final = "application/openmetrics-text"


def chosen_type(accept: str) -> str:
    """Returns the content type that an Accept header prefers; Prometheus' text where it does not mention
    OpenMetrics."""
    weights = {"": 0.0, _OPEN_METRICS_TYPE: 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        name, *parameters = (word.strip().lower() for word in part.split(";"))
        if name in weights and "version=0.0.1" not in parameters:
            weights[name] = max(weights[name], _quality(parameters))
    is_open = weights[_OPEN_METRICS_TYPE] > 0 and weights[_OPEN_METRICS_TYPE] >= weights["text/plain"]
    return OPEN_METRICS if is_open else TEXT


def _quality(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return finite_number(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def written(families: Iterable[Family], content_type: str = TEXT) -> bytes:
    """Returns the families in the format of `TEXT` or `OPEN_METRICS`. A family without samples is left out."""
    is_open = content_type == OPEN_METRICS
    parts = [part for family in families if family.samples for part in _family(family, is_open=is_open)]
    if is_open:
        parts.append("# EOF\n")
    return "".join(parts).encode()


def _family(family: Family, *, is_open: bool) -> Iterator[str]:
    name = family.name
    series = f"{name}_total" if family.kind is MetricKind.COUNTER else name
    shown = name if is_open else series
    meaning = family.meaning.replace("\\", r"\\").replace("\n", r"\n")
    if is_open:
        meaning = meaning.replace('"', r"\"")
    yield f"# HELP {shown} {meaning}\n# TYPE {shown} {family.kind.value}\n"
    if family.kind is MetricKind.HISTOGRAM:
        for label_text, value in family.samples:
            assert isinstance(value, Histogram)
            yield from _histogram(name, label_text, value)
        return
    yield "".join(
        [
            f"{series}{{{label_text}}} {value if value.__class__ is int else _number(value)}\n"
            if label_text
            else f"{series} {_number(value)}\n"
            for label_text, value in family.samples
        ]
    )


def _histogram(name: str, label_text: str, value: Histogram) -> Iterator[str]:
    before = f"{label_text}," if label_text else ""
    braces = f"{{{label_text}}}" if label_text else ""
    running = 0
    for bound, running in zip((*value.bounds, math.inf), accumulate(value.counts), strict=True):
        yield f'{name}_bucket{{{before}le="{_number(float(bound))}"}} {running}\n'
    yield f"{name}_count{braces} {running}\n{name}_sum{braces} {_number(value.total)}\n"


def _number(value: Any) -> str:
    """Returns the text of an `int`, a `bool` or a `float`."""
    if not isinstance(value, float):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)
