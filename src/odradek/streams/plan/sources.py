"""What the sources of a program are called when two programs are compared: after their topics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from odradek.streams.plan.operators import Operator, TopicSource, walk

_SIGNS = {"_": "__", ".": "_d", "-": "_h"}
"""Names of letters, digits and underscores, as Spark takes them. Different topics stay different."""


def source_names(ends: Iterable[Operator]) -> dict[TopicSource, str]:
    """Of each source of these outputs, its name. A topic that is read twice: `orders`, `orders_2`, in the program's order."""
    counts: Counter[str] = Counter()
    names: dict[TopicSource, str] = {}
    for operator in walk(*ends):
        if isinstance(operator, TopicSource):
            name = re.sub(r"[_.-]", lambda sign: _SIGNS[sign[0]], operator.topic)
            counts[name] += 1
            names[operator] = name if counts[name] == 1 else f"{name}_{counts[name]}"
    return names
