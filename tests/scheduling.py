"""Which tests run in one worker of `make test`, and which begin first.

Some fixtures cost more than the tests that use them: a Spark session is a JVM that has to warm up. So the tests that need Spark
are two units of work, each with one session, and one worker runs a unit. Elsewhere a file is a unit, since its tests share
fixtures. Where each test has processes or a world of its own, each is a unit. Long units begin first, so that no worker ends
late and alone.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadScopeScheduling

ONE_SESSION: Final = {
    "tests/spark/streams/": "streams on Spark",
    "tests/streams/oracle/test_programs.py": "streams on Spark",
    "tests/spark/": "Spark",
}
"""How the path of a test begins, and its unit; the first that fits counts."""
APART: Final = ("tests/faults/", "tests/hostile/", "tests/simulation/")
LONG: Final = (
    "tests/spark/",
    "tests/streams/",
    "tests/faults/",
    "tests/hostile/",
    "tests/interop/",
    "tests/simulation/",
)


def unit_of(node_id: str) -> str:
    """The unit of work that a test belongs to."""
    for prefix, unit in ONE_SESSION.items():
        if node_id.startswith(prefix):
            return unit
    return node_id if node_id.startswith(APART) else node_id.partition("::")[0]


def rank_of(node_id: str) -> int:
    """Units of a lower rank begin earlier."""
    return next((rank for rank, prefix in enumerate(LONG) if node_id.startswith(prefix)), len(LONG))


class UnitScheduling(LoadScopeScheduling):
    """Gives units to workers in the order of the tests, which `rank_of` has sorted."""

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = (
            False  # it would put units of many tests first, however short they are
        )

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
