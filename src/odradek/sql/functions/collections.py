"""ARRAY and MAP: what is in them, sets, sorting, and functions of a lambda.

Names that begin with __ belong to the lambdas that are written here; a statement's names never do.
"""

from __future__ import annotations

import re
from typing import Final

from odradek.sql.functions.definitions import ScalarDefinition, scalar
from odradek.sql.functions.signatures import Call
from odradek.values.types import SqlType

_LAMBDA: Final = re.compile(r"\s*\(?\s*([^()\->]+?)\s*\)?\s*->\s*(.*)", re.DOTALL)


def lambda_parts(text: str) -> tuple[list[str], str]:
    """Names and body of a Spark lambda: `(k, v) -> k + v`."""
    match = _LAMBDA.fullmatch(text)
    if match is None:
        raise AssertionError(f"{text} is no lambda")
    return [name.strip() for name in match[1].split(",")], match[2]


def _other_if_null(both: str) -> str:
    return f"CASE WHEN {{0}} IS NULL THEN {{1}} WHEN {{1}} IS NULL THEN {{0}} ELSE {both} END"


def _joined(delimiter: str) -> str:
    return f"array_join(transform({{0}}, __item -> coalesce(cast(__item as string), 'null')), {delimiter})"


def _entries(call: Call) -> str:
    source, is_sorted = call.texts
    keys = f"if({is_sorted}, array_sort(map_keys({source})), map_keys({source}))"
    return f"transform({keys}, __key -> named_struct('K', __key, 'V', element_at({source}, __key)))"


def _as_map(call: Call) -> str:
    keys, values = call.texts
    pairs = f"zip_with({keys}, {values}, (__key, __value) -> struct(__key, __value))"
    return f"map_from_entries(filter({pairs}, __pair -> __pair.__key IS NOT NULL))"


def _element(call: Call) -> str:
    index, *texts = call.texts
    return f"if({index} BETWEEN 1 AND {len(texts)}, element_at(array({', '.join(texts)}), {index}), NULL)"


def _array_index(call: Call) -> str:
    text, *texts = call.texts
    return f"cast(coalesce(array_position(array({', '.join(texts)}), {text}), 0) as int)"


def _slice(call: Call) -> str:
    source, start, end = call.texts
    first, last = f"coalesce({start}, 1)", f"coalesce({end}, array_size({source}))"
    return (
        f"if({first} >= 1 AND {last} <= array_size({source}) AND {first} - 1 <= {last}, "
        f"slice({source}, {first}, {last} - {first} + 1), NULL)"
    )


_STATE_BYTES_MAX: Final = 1 << 20
_STATE_ITEMS_MAX: Final = 100_000
"""A state of REDUCE that is larger is null: one that doubles at each element would take the memory of all."""


def _is_small(kind: SqlType) -> str | None:
    """Returns Spark SQL that tests whether `__state` may be kept; None for types whose values are always small."""
    if kind.kind in ("STRING", "BYTES"):
        return f"octet_length(__state) <= {_STATE_BYTES_MAX}"
    if kind.kind in ("ARRAY", "MAP"):
        return f"size(__state) <= {_STATE_ITEMS_MAX}"
    return None


def _reduced(items: str, start: str, element: str, state: str, body: str, kind: SqlType) -> str:
    """Returns Spark SQL for a fold of `items`. `state`, `element`: names of variables in `body`, which gives the next state."""
    first, step, small = f"cast({start} as {kind.ddl})", f"cast({body} as {kind.ddl})", _is_small(kind)
    if small is None:
        fold = f"aggregate({items}, {first}, ({state}, {element}) -> {step})"
    else:
        steps = f"transform(array(__fold.kept), {state} -> {step})"
        folded = (
            f"struct(if({small}, __state, NULL) as kept, __fold.lost OR NOT coalesce({small}, true) as lost)"
        )
        fold = (
            f"aggregate({items}, struct({first} as kept, false as lost),"
            f" (__fold, {element}) -> transform({steps}, __state -> {folded})[0],"
            " __fold -> if(__fold.lost, NULL, __fold.kept))"
        )
    return f"if({start} IS NULL, NULL, {fold})"


def _reduced_array(call: Call) -> str:
    source, start, function = call.texts
    (state, element), body = lambda_parts(function)
    items = f"coalesce({source}, cast(array() as {call.kinds[0].ddl}))"
    return _reduced(items, start, element, state, body, call.returns)


def _reduced_map(call: Call) -> str:
    source, start, function = call.texts
    (state, key, value), body = lambda_parts(function)
    entries = f"coalesce(map_entries({source}), map_entries(cast(map() as {call.kinds[0].ddl})))"
    step = f"zip_with(array(__entry.key), array(__entry.value), ({key}, {value}) -> cast({body} as {call.returns.ddl}))[0]"
    return _reduced(entries, start, "__entry", state, step, call.returns)


def _transformed_map(call: Call) -> str:
    source, keys, values = call.texts

    def zipped(function: str) -> str:
        return f"zip_with(map_keys({source}), map_values({source}), {function})"

    return f"map_from_arrays({zipped(keys)}, {zipped(values)})"


_DESCENDING: Final = (
    "CASE WHEN upper(trim({1})) IN ('ASC', 'ASCENDING') THEN array_sort({0}) "
    "WHEN upper(trim({1})) IN ('DESC', 'DESCENDING') THEN sort_array({0}, false) END"
)

COLLECTIONS: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "ARRAY_CONCAT",
        "ARRAY",
        "The elements of both. When one of them is null, the other.",
        ("ARRAY<T> left, ARRAY<T> right -> ARRAY<T>", _other_if_null("concat({0}, {1})")),
    ),
    scalar(
        "ARRAY_CONTAINS",
        "ARRAY",
        "Whether a value is in the array; a null is found, too.",
        (
            "ARRAY<T> array, T value -> BOOLEAN",
            "coalesce(exists({0}, __item -> __item <=> {1}), false)",
        ),
    ),
    scalar(
        "ARRAY_DISTINCT",
        "ARRAY",
        "Each value once, in the order in which they first appear.",
        ("ARRAY<T> array -> ARRAY<T>", "array_distinct({0})"),
    ),
    scalar(
        "ARRAY_EXCEPT",
        "ARRAY",
        "The distinct values of the first that are not in the second.",
        ("ARRAY<T> left, ARRAY<T> right -> ARRAY<T>", "array_except({0}, {1})"),
    ),
    scalar(
        "ARRAY_INTERSECT",
        "ARRAY",
        "The distinct values that are in both, in the order of the first.",
        ("ARRAY<T> left, ARRAY<T> right -> ARRAY<T>", "array_intersect({0}, {1})"),
    ),
    scalar(
        "ARRAY_JOIN",
        "ARRAY",
        "The elements as one text, with a delimiter in between: a comma if not given. A null is the text null.",
        ("ARRAY<P> array -> STRING", _joined("','")),
        ("ARRAY<P> array, STRING delimiter -> STRING", _joined("coalesce({1}, '')")),
    ),
    scalar("ARRAY_LENGTH", "ARRAY", "The number of elements.", ("ARRAY<T> array -> INT", "array_size({0})")),
    scalar(
        "ARRAY_MAX",
        "ARRAY",
        "The largest element that is not null.",
        ("ARRAY<P> array -> P", "array_max({0})"),
    ),
    scalar(
        "ARRAY_MIN",
        "ARRAY",
        "The smallest element that is not null.",
        ("ARRAY<P> array -> P", "array_min({0})"),
    ),
    scalar(
        "ARRAY_REMOVE",
        "ARRAY",
        "The array without all elements that are equal to a value.",
        ("ARRAY<T> array, T value -> ARRAY<T>", "filter({0}, __item -> NOT (__item <=> {1}))"),
    ),
    scalar(
        "ARRAY_SORT",
        "ARRAY",
        "The elements in order, 'ASC' (the default) or 'DESC'; nulls at the end.",
        ("ARRAY<P> array -> ARRAY<P>", "array_sort({0})"),
        ("ARRAY<P> array, STRING direction -> ARRAY<P>", _DESCENDING),
    ),
    scalar(
        "ARRAY_UNION",
        "ARRAY",
        "The distinct values of both, in the order in which they appear.",
        ("ARRAY<T> left, ARRAY<T> right -> ARRAY<T>", "array_union({0}, {1})"),
    ),
    scalar(
        "AS_MAP",
        "MAP",
        "A map of keys and values that are at the same positions. Of equal keys the last one stays.",
        ("ARRAY<STRING> keys, ARRAY<T> values -> MAP<STRING, T>", _as_map),
    ),
    scalar(
        "ELT",
        "STRING",
        "The n-th of the texts, from 1 on; null when there is none.",
        ("INT n, STRING... texts -> STRING", _element),
    ),
    scalar(
        "ENTRIES",
        "MAP",
        "The entries of a map as structs of K and V, in the order of keys if wanted.",
        ("MAP<STRING, V> map, BOOLEAN sorted -> ARRAY<STRUCT<K STRING, V V>>", _entries),
    ),
    scalar(
        "FIELD",
        "STRING",
        "The place of a text among others, from 1 on; 0 when it is not there.",
        ("STRING text, STRING... texts -> INT", _array_index),
    ),
    scalar(
        "FILTER",
        "LAMBDA",
        "The elements, or entries, for which the lambda is true.",
        ("ARRAY<T> array, LAMBDA<T, BOOLEAN> function -> ARRAY<T>", "filter({0}, {1})"),
        ("MAP<K, V> map, LAMBDA<K, V, BOOLEAN> function -> MAP<K, V>", "map_filter({0}, {1})"),
    ),
    scalar(
        "MAP_KEYS",
        "MAP",
        "The keys of a map.",
        ("MAP<K, V> map -> ARRAY<K>", "map_keys({0})"),
    ),
    scalar(
        "MAP_UNION",
        "MAP",
        "The entries of both; the second one wins. When one of them is null, the other.",
        ("MAP<K, V> left, MAP<K, V> right -> MAP<K, V>", _other_if_null("map_concat({0}, {1})")),
    ),
    scalar(
        "MAP_VALUES",
        "MAP",
        "The values of a map.",
        ("MAP<K, V> map -> ARRAY<V>", "map_values({0})"),
    ),
    scalar(
        "REDUCE",
        "LAMBDA",
        "One value from all elements, or entries: the lambda makes the next state of the state and an element. A state above"
        " 1 MiB, or of more than 100,000 items, is null.",
        ("ARRAY<T> array, U start, LAMBDA<U, T, U> function -> U", _reduced_array),
        ("MAP<K, V> map, U start, LAMBDA<U, K, V, U> function -> U", _reduced_map),
    ),
    scalar(
        "SLICE",
        "ARRAY",
        "The elements from a place to a place, which count from 1; null when the array has no such places.",
        ("ARRAY<T> array, INT start, INT end -> ARRAY<T>", _slice),
    ),
    scalar(
        "TRANSFORM",
        "LAMBDA",
        "What a lambda makes of each element; of each entry, one makes the key and another the value.",
        ("ARRAY<T> array, LAMBDA<T, U> function -> ARRAY<U>", "transform({0}, {1})"),
        ("MAP<K, V> map, LAMBDA<K, V, T> keys, LAMBDA<K, V, U> values -> MAP<T, U>", _transformed_map),
    ),
)

NULLS: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "AS_VALUE",
        "CONVERSION",
        "The same value: copies a column of the key into the record's value.",
        ("T key -> T", "{0}"),
    ),
    scalar(
        "COALESCE",
        "CONDITIONAL",
        "The first of the values that is not null.",
        ("T value, T... others -> T", "coalesce({all})"),
    ),
    scalar(
        "IFNULL",
        "CONDITIONAL",
        "The value, or another one when it is null.",
        ("T value, T other -> T", "coalesce({0}, {1})"),
    ),
    scalar(
        "NULLIF",
        "CONDITIONAL",
        "The value, or null when it is equal to another one.",
        ("T value, T other -> T", "nullif({0}, {1})"),
    ),
)
