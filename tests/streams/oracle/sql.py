"""The functions of a document as Spark SQL over one bare column `value`, a struct of `tag` and `n`, and the column `key`.

Each text knows its twin in Python, so that a program can also be driven without Spark (`direct.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from tests.streams.oracle.generator import Node

KEY = "STRING"
VALUE = "STRUCT<tag: STRING, n: BIGINT>"
Columns = dict[str, Any]
"""What an expression sees: columns by name. One that is absent is null."""


class TwinExpression(str):
    """SQL, and `of(columns)`, the same in Python."""

    __slots__ = ("of",)

    of: Callable[[Columns], Any]

    @classmethod
    def made(cls, text: str, of: Callable[[Columns], Any]) -> Self:
        twin = cls(text)
        twin.of = of
        return twin

    def named(self, name: str) -> TwinExpression:
        return TwinExpression.made(f"{self} AS {name}", self.of)


def value(tag: str, n: str) -> str:
    return f"named_struct('tag', {tag}, 'n', CAST({n} AS BIGINT))"


def column(name: str) -> TwinExpression:
    return TwinExpression.made(name, lambda seen: seen.get(name))


def _joined(seen: Columns) -> Any:
    left, right = seen.get("value"), seen.get("r_value")
    tags = "|".join("-" if side is None else side["tag"] for side in (left, right))
    numbers = [0 if side is None else side["n"] for side in (left, right)]
    return {"tag": tags, "n": numbers[0] * 10 + numbers[1]}


JOINED = TwinExpression.made(
    value(
        "concat(coalesce(value.tag, '-'), '|', coalesce(r_value.tag, '-'))",
        "coalesce(value.n, 0) * 10 + coalesce(r_value.n, 0)",
    )
    + " AS value",
    _joined,
)
"""What every join makes."""


def tagged(tag: str) -> TwinExpression:
    """A number as a value with this tag."""
    return TwinExpression.made(
        f"{value(repr(tag), 'value')} AS value", lambda seen: {"tag": tag, "n": seen.get("value")}
    )


def _when_some(test: Callable[[Any], Any]) -> Callable[[Columns], Any]:
    """Null, which does not hold, where the value is null."""
    return lambda seen: None if seen.get("value") is None else test(seen["value"])


def where(node: Node) -> TwinExpression:
    match node["f"]:
        case "n>":
            text, of = f"coalesce(value.n > {node['c']}, false)", _when_some(lambda it: it["n"] > node["c"])
        case "n%":
            text = f"coalesce(pmod(value.n, {node['m']}) = {node['r']}, false)"
            of = _when_some(lambda it: it["n"] % node["m"] == node["r"])
        case "tag=":
            text = f"coalesce(value.tag = '{node['c']}', false)"
            of = _when_some(lambda it: it["tag"] == node["c"])
        case "key=":
            text = f"coalesce(key = '{node['c']}', false)"
            of = lambda seen: seen.get("key") == node["c"]  # noqa: E731
        case "keyed":
            text, of = "key IS NOT NULL", lambda seen: seen.get("key") is not None
        case "null":
            text, of = "value IS NULL", lambda seen: seen.get("value") is None
        case "some":
            text, of = "value IS NOT NULL", lambda seen: seen.get("value") is not None
        case _:
            raise ValueError(node)
    return TwinExpression.made(text, of)


def change(node: Node) -> TwinExpression:
    of: Callable[[Columns], Any]
    match node["f"]:
        case "add":
            changed = value("value.tag", f"value.n + ({node['c']})")
            of = _when_some(lambda it: {**it, "n": it["n"] + node["c"]})
        case "tag":
            changed = value(f"concat(value.tag, '{node['c']}')", "value.n")
            of = _when_some(lambda it: {**it, "tag": it["tag"] + node["c"]})
        case "drop":
            text = f"CASE WHEN pmod(value.n, {node['m']}) != {node['r']} THEN value END AS value"
            of = _when_some(lambda it: it if it["n"] % node["m"] != node["r"] else None)
            return TwinExpression.made(text, of)
        case "default":
            text = f"coalesce(value, {value(repr(node['tag']), str(node['n']))}) AS value"
            return TwinExpression.made(
                text, lambda seen: seen.get("value") or {"tag": node["tag"], "n": node["n"]}
            )
        case _:
            raise ValueError(node)
    return TwinExpression.made(f"CASE WHEN value IS NOT NULL THEN {changed} END AS value", of)


def by(node: Node) -> TwinExpression:
    of: Callable[[Columns], Any]
    match node["f"]:
        case "key":
            return column("key")
        case "const":
            text, of = f"'{node['c']}'", lambda seen: node["c"]
        case "suffix":
            text = f"concat(key, '{node['c']}')"
            of = lambda seen: None if seen.get("key") is None else seen["key"] + node["c"]  # noqa: E731
        case "tag":
            text, of = "value.tag", _when_some(lambda it: it["tag"])
        case "tag unless":
            text = f"nullif(value.tag, '{node['c']}')"
            of = _when_some(lambda it: None if it["tag"] == node["c"] else it["tag"])
        case "n%":
            text = f"CAST(pmod(value.n, {node['m']}) AS STRING)"
            of = _when_some(lambda it: str(it["n"] % node["m"]))
        case _:
            raise ValueError(node)
    return TwinExpression.made(text, of)


def repeated(node: Node) -> TwinExpression:
    """An array of structs whose one field is the new value."""
    numbers = f"filter(sequence(0, {node['m']}), i -> i < pmod(value.n, {node['m']}))"
    text = f"transform({numbers}, i -> named_struct('value', {value('value.tag', 'i')}))"
    return TwinExpression.made(
        text,
        _when_some(lambda it: [{"value": {"tag": it["tag"], "n": i}} for i in range(it["n"] % node["m"])]),
    )


KEYED_TWICE = TwinExpression.made(
    "CASE WHEN value IS NOT NULL THEN array(named_struct('k', value.tag, 'v', value), "
    "named_struct('k', key, 'v', value)) END",
    lambda seen: (
        None
        if seen.get("value") is None
        else [{"k": seen["value"]["tag"], "v": seen["value"]}, {"k": seen.get("key"), "v": seen["value"]}]
    ),
)
"""An array of structs of a new key and the value."""
SUMMED = TwinExpression.made("coalesce(sum(value.n), 0) AS value", _when_some(lambda it: it["n"]))
"""The twin is the argument of the sum."""
