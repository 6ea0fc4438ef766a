"""The functions of a document as Spark SQL over one bare column `value`, a struct of `tag` and `n`, and the column `key`."""

from __future__ import annotations

from tests.streams.oracle.generator import Node

KEY = "STRING"
VALUE = "STRUCT<tag: STRING, n: BIGINT>"


def value(tag: str, n: str) -> str:
    return f"named_struct('tag', {tag}, 'n', CAST({n} AS BIGINT))"


JOINED = (
    value(
        "concat(coalesce(value.tag, '-'), '|', coalesce(r_value.tag, '-'))",
        "coalesce(value.n, 0) * 10 + coalesce(r_value.n, 0)",
    )
    + " AS value"
)
"""What every join makes."""


def where(node: Node) -> str:
    match node["f"]:
        case "n>":
            return f"coalesce(value.n > {node['c']}, false)"
        case "n%":
            return f"coalesce(pmod(value.n, {node['m']}) = {node['r']}, false)"
        case "tag=":
            return f"coalesce(value.tag = '{node['c']}', false)"
        case "key=":
            return f"coalesce(key = '{node['c']}', false)"
        case "null":
            return "value IS NULL"
        case "some":
            return "value IS NOT NULL"
    raise ValueError(node)


def change(node: Node) -> str:
    match node["f"]:
        case "add":
            changed = value("value.tag", f"value.n + ({node['c']})")
        case "tag":
            changed = value(f"concat(value.tag, '{node['c']}')", "value.n")
        case "drop":
            return f"CASE WHEN pmod(value.n, {node['m']}) != {node['r']} THEN value END AS value"
        case "default":
            return f"coalesce(value, {value(repr(node['tag']), str(node['n']))}) AS value"
        case _:
            raise ValueError(node)
    return f"CASE WHEN value IS NOT NULL THEN {changed} END AS value"


def by(node: Node) -> str:
    match node["f"]:
        case "key":
            return "key"
        case "const":
            return f"'{node['c']}'"
        case "suffix":
            return f"concat(key, '{node['c']}')"
        case "tag":
            return "value.tag"
        case "tag unless":
            return f"nullif(value.tag, '{node['c']}')"
        case "n%":
            return f"CAST(pmod(value.n, {node['m']}) AS STRING)"
    raise ValueError(node)


def repeated(node: Node) -> str:
    """An array of structs whose one field is the new value."""
    numbers = f"filter(sequence(0, {node['m']}), i -> i < pmod(value.n, {node['m']}))"
    return f"transform({numbers}, i -> named_struct('value', {value('value.tag', 'i')}))"


KEYED_TWICE = (
    "CASE WHEN value IS NOT NULL THEN array(named_struct('k', value.tag, 'v', value), "
    "named_struct('k', key, 'v', value)) END"
)
"""An array of structs of a new key and the value."""
