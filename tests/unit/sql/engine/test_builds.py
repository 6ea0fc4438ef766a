"""What goes to the engine with a statement: all that its names mean, and nothing that grows with the catalog."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sql.case_files import cases_of

from odradek.model.errors import OdradekError
from odradek.sql.applying import apply
from odradek.sql.changes import QueryStarted
from odradek.sql.language import parse
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.planning import plan
from odradek.sql.planning.plan import explain
from odradek.sql.queries.builds import PlannedText

CASES = Path(__file__).resolve().parents[3] / "sql" / "cases"
OTHERS = "".join(
    f"CREATE STREAM other{number} (k STRING KEY, v INT) WITH (KAFKA_TOPIC='o{number}', VALUE_FORMAT='JSON');"
    for number in range(200)
)
FUNCTIONS = """
CREATE FUNCTION twice(x INT) RETURNS INT LANGUAGE PYTHON AS $$
def twice(x):
    return 2 * x
$$;
CREATE AGGREGATE FUNCTION total(x INT) RETURNS INT LANGUAGE PYTHON AS $$
def start():
    return 0
def add(state, x):
    return state + (x or 0)
def merge(state, other):
    return state + other
def result(state):
    return state
$$;
"""


def started(text: str, catalog: SqlCatalog) -> Iterator[tuple[SqlCatalog, str]]:
    """Yields the catalog before each statement that starts a query, and the statement."""
    for number, statement in enumerate(parse(text)):
        try:
            applied = apply(catalog, statement, number)
        except OdradekError:
            continue  # no statement of the catalog's, or one that is refused
        if any(isinstance(change, QueryStarted) for change in applied.changes):
            yield catalog, statement.text
        catalog = applied.catalog


def test_statements_of_the_cases_mean_the_same_in_the_engine() -> None:
    counted = 0
    for path in sorted(CASES.glob("*.case")):
        for case in cases_of(path):
            if case.error is not None:
                continue
            for catalog, text in started(case.statements, SqlCatalog()):
                there = pickle.loads(pickle.dumps(PlannedText.of(catalog, text)))
                statement = parse_one(text)
                assert explain(plan(there.catalog(), statement)) == explain(plan(catalog, statement))
                counted += 1
    assert counted > 140


@pytest.mark.parametrize(
    ("made", "statement", "registered"),
    [
        ("", "CREATE STREAM t AS SELECT * FROM other7;", []),
        (
            "CREATE STREAM `a``b` (v INT) WITH (KAFKA_TOPIC='q', VALUE_FORMAT='JSON', PARTITIONS=1);",
            "CREATE STREAM t AS SELECT * FROM `a``b`;",
            [],
        ),
        (
            "CREATE STREAM `low` (v INT) WITH (KAFKA_TOPIC='q', VALUE_FORMAT='JSON', PARTITIONS=1);",
            "CREATE STREAM t AS SELECT * FROM `low`;",
            [],
        ),
        (
            "CREATE TYPE pair AS STRUCT<a INT, b INT>;",
            "CREATE STREAM t AS SELECT k, CAST(null AS pair) AS p FROM other7;",
            [],
        ),
        (FUNCTIONS, "CREATE STREAM t AS SELECT k, TWICE(v) AS w FROM other7;", ["odradek_user_twice"]),
        (FUNCTIONS, "CREATE TABLE t AS SELECT k, TOTAL(v) AS w FROM other7 GROUP BY k;", []),
    ],
)
def test_what_is_sent_does_not_grow_with_the_catalog(
    made: str, statement: str, registered: list[str]
) -> None:
    ((catalog, text),) = started(OTHERS + made + statement, SqlCatalog(allows_python=True))
    data = pickle.dumps(PlannedText.of(catalog, text))
    there = pickle.loads(data)
    assert len(data) < 4_000
    assert len(there.catalog().sources) == 1
    assert [made.name for made in there.catalog().registered_functions] == registered
    assert explain(plan(there.catalog(), parse_one(text))) == explain(plan(catalog, parse_one(text)))
