"""CREATE FUNCTION in Python: what the code must define, what it may not do, who may."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from odradek.sql.applying import apply
from odradek.sql.functions import FUNCTIONS
from odradek.sql.functions.document import page
from odradek.sql.functions.user import user_function
from odradek.sql.language import parse_one
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.planning.aggregation import SqlAggregation
from odradek.sql.planning.steps import AggregateCall
from odradek.values.errors import SqlError
from odradek.values.types import BIGINT, INTEGER, STRING

PRODUCT = """
def start():
    return 1
def add(state, value):
    return state * value
def merge(left, right):
    return left * right
"""


def test_an_expression_of_the_parameters_is_a_function() -> None:
    definition, (python,) = user_function(
        "SHOUT",
        "scalar",
        [("WORD", STRING), ("TIMES", INTEGER)],
        STRING,
        "word.upper() * times",
        allowed=True,
    )
    function = FUNCTIONS.with_functions([definition]).scalar("shout", [STRING, INTEGER])
    assert function.spark(["a", "2"]) == "odradek_user_shout(a, 2)"
    assert pickle.loads(pickle.dumps(python.function))("ab", 2) == "ABAB"
    assert python.ddl == "STRING"


def test_code_defines_a_function_that_is_called_as_in_sql() -> None:
    code = """
        import re
        def Words(text):
            return len(re.findall(r"\\w+", text))
    """
    _, (python,) = user_function("WORDS", "scalar", [("TEXT", STRING)], INTEGER, code, allowed=True)
    assert python("one two") == 2
    assert python(None) is None


def test_a_table_function_gives_rows() -> None:
    definition, (python,) = user_function(
        "LETTERS", "table", [("W", STRING)], STRING, "list(w)", allowed=True
    )
    assert FUNCTIONS.with_functions([definition]).table("LETTERS", [STRING]).returns == STRING
    assert (python("ab"), python.ddl) == (["a", "b"], "ARRAY<STRING>")


@pytest.mark.parametrize(
    ("more", "takes_back"), [("", False), ("\ndef undo(state, value):\n    return state // value", True)]
)
def test_an_aggregate_is_for_tables_when_it_can_undo(more: str, takes_back: bool) -> None:
    definition, python = user_function(
        "PRODUCT", "aggregate", [("VALUE", BIGINT)], BIGINT, PRODUCT + more, allowed=True
    )
    library = pickle.loads(pickle.dumps(definition))
    function = FUNCTIONS.with_functions([library]).aggregate("PRODUCT", [BIGINT], [None])
    state = function.add(function.add(function.start(), 3), 4)
    assert (function.result(state), function.merge(state, 2), python) == (12, 24, ())
    assert (function.undo is not None) is takes_back
    if function.undo is not None:
        assert function.result(function.undo(state, 3)) == 4


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("scalar", "a +", "line 1: the code is no Python"),
        ("scalar", "import os\ndef f(a): return os.getcwd()", "line 1: os may not be imported"),
        ("scalar", "def f(a):\n    return open(a).read()", "line 2: open may not be used"),
        ("scalar", "a.__class__.__mro__", "may not be used"),
        ("scalar", "def g(a): return a", "defines no function f"),
        ("scalar", "def f(a, b): return a", "must take 1 arguments"),
        ("scalar", "raise ValueError(1)", "its code fails: ValueError: 1"),
        ("aggregate", "def start(): return 0", "defines no function add"),
        (
            "aggregate",
            "def start(): return 0\ndef add(s): return s\ndef merge(a, b): return a",
            "must take 2 arguments",
        ),
    ],
)
def test_code_that_cannot_be_a_function_is_refused(kind, code: str, message: str) -> None:
    with pytest.raises(SqlError, match=message):
        user_function("F", kind, [("A", STRING)], STRING, code, allowed=True)


def test_python_is_off_unless_the_server_allows_it() -> None:
    with pytest.raises(SqlError, match="switched off"):
        user_function("F", "scalar", [("A", STRING)], STRING, "a", allowed=False)


def test_an_aggregate_of_a_user_travels_with_its_query_and_the_others_do_not() -> None:
    catalog = apply(
        SqlCatalog(allows_python=True),
        parse_one(f"CREATE AGGREGATE FUNCTION product(value BIGINT) RETURNS BIGINT AS $${PRODUCT}$$"),
        0,
    ).catalog
    product, count = (
        AggregateCall(
            name=name, kinds=(BIGINT,), constants=(None,), arguments=("V",), result=name, returns=BIGINT
        )
        for name in ("PRODUCT", "COUNT")
    )
    sent = pickle.dumps(SqlAggregation((product, count), catalog.functions))
    fold = pickle.loads(sent)
    added = fold.add({}, fold.add({}, None, {"V": 3}), {"V": 4})
    assert fold.result(added) == {"PRODUCT": 12, "COUNT": 2}
    assert len(pickle.dumps(SqlAggregation((count,), catalog.functions))) < len(sent)


def test_a_catalog_that_does_not_allow_python_refuses_it() -> None:
    with pytest.raises(SqlError, match="switched off") as refused:
        apply(SqlCatalog(), parse_one("CREATE FUNCTION one() RETURNS INT AS $$ 1 $$"), 0)
    assert "odradek.sql.python.functions=true" in refused.value.text("")


def test_the_page_of_functions_is_that_of_the_table() -> None:
    written = (Path(__file__).parents[3] / "docs" / "sql-functions.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m odradek.sql.functions.document > docs/sql-functions.md"
