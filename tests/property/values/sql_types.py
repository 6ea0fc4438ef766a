"""Types of columns, three levels deep, with every precision and names of odd characters."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from odradek.values.types import STRING, SqlType, array_of, decimal_of, map_of, struct_of_fields

SQL_KINDS: Final = ("BOOLEAN", "INTEGER", "BIGINT", "DOUBLE", "STRING", "BYTES", "DATE", "TIME", "TIMESTAMP")
SPARK_KINDS: Final = ("TINYINT", "SMALLINT", "FLOAT", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "NULL")
ANY_NAMES: Final = st.one_of(
    st.sampled_from(
        ["`", "``", "a`b", "a b", "a.b", "<", ",", ":", "--x", "/*", "'", "\n", "1", "x NOT NULL"]
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
)
IDENTIFIERS: Final = st.one_of(
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,4}", fullmatch=True),
    st.sampled_from(["a", "a_b", "b", "b_a", "key", "value", "MapValue", "message", "optional", "string"]),
)


def sql_types(
    kinds: tuple[str, ...] = SQL_KINDS, names: st.SearchStrategy[str] = ANY_NAMES
) -> st.SearchStrategy[SqlType]:
    """Types up to three levels deep. Most maps have texts as keys, as the schema languages want it."""
    level = simple = simple_types(kinds)
    keys = st.one_of(st.just(STRING), st.just(STRING), simple_types())
    for _ in range(3):
        level = st.one_of(
            simple,
            st.builds(array_of, level),
            st.builds(map_of, keys, level),
            structs(level, names),
        )
    return level


def simple_types(kinds: tuple[str, ...] = SQL_KINDS) -> st.SearchStrategy[SqlType]:
    return st.one_of(st.sampled_from(kinds).map(lambda kind: SqlType(kind=kind)), decimals())


def decimals() -> st.SearchStrategy[SqlType]:
    return st.integers(1, 38).flatmap(
        lambda precision: st.integers(0, precision).map(lambda scale: decimal_of(precision, scale))
    )


def structs(parts: st.SearchStrategy[SqlType], names: st.SearchStrategy[str]) -> st.SearchStrategy[SqlType]:
    """Structs of one to three fields, whose names differ in more than their case."""
    fields = st.lists(
        st.tuples(names, parts), min_size=1, max_size=3, unique_by=lambda field: field[0].upper()
    )
    return fields.map(struct_of_fields)
