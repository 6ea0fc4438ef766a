"""The names of a query's sources in Spark's checkpoints: their topics' names, so that sources can come, go and move."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from odradek.streams.plan.operators import FrameSource, Operator, TopicSource, walk

_SIGNS = {"_": "__", ".": "_d", "-": "_h"}
"""Spark takes letters, digits and underscores. Different topics stay different."""


def source_names(ends: Iterable[Operator]) -> dict[TopicSource, str]:
    """Returns the name of each source of outputs. A topic read twice has `orders` and `orders_2`, in the program's order."""
    counts: Counter[str] = Counter()
    names: dict[TopicSource, str] = {}
    for operator in walk(*ends):
        if isinstance(operator, TopicSource):
            name = re.sub(r"[_.-]", lambda sign: _SIGNS[sign[0]], operator.topic)
            counts[name] += 1
            names[operator] = name if counts[name] == 1 else f"{name}_{counts[name]}"
    return names


def can_be_named(end: Operator) -> bool:
    """Whether Spark takes names for the sources of this output: then all of them need one, and each occurs in the plan once.

    A DataFrame of the user's is not ours to name. A stream that is read in two ways and merged again is in the plan twice.
    """
    operators = list(walk(end))
    paths: Counter[int] = Counter({id(end): 1})
    for operator in reversed(operators):
        for source in operator.inputs:
            paths[id(source)] += paths[id(operator)]
    return not any(
        isinstance(operator, FrameSource) or (isinstance(operator, TopicSource) and paths[id(operator)] > 1)
        for operator in operators
    )
