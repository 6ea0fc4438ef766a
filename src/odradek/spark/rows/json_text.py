"""JSON as a value of a type, in columns: all of the text is one value that fits the type, or it is wrong.

`from_json` alone reads any text as a struct of nulls, and drops what follows the value. So the text is the only element of a
list, in a map with one more entry after it. A text that closes the list and opens another makes a third entry; one that ends
the map would have to know the names around it, which are random.

Spark also takes NaN and infinities without quotes, in fields that it skips, too. JSON has no such numbers (RFC 8259, section
6), so a text that contains one of these words is parsed once more, strictly. Inside quotes the words are allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyspark.sql import Column, types
    from pyspark.sql import functions as sf
else:
    sf = lazy("pyspark.sql.functions")
    types = lazy("pyspark.sql.types")

_OUTSIDE: Final = f"m{token_hex(8)}"
_END: Final = f"end{token_hex(8)}"
"""The names of the map and of its last entry."""
_CORRUPT: Final = "__corrupt"
_NON_NUMBERS: Final = ("NaN", "INF", "Infinity")
_STRICT: Final = {"allowNonNumericNumbers": "false"}


class JsonValue(NamedTuple):
    """The value of a text, and whether the text is anything else. Both are null for a null text."""

    value: Column
    is_wrong: Column


def json_value(text: Column, kind: types.DataType, options: Mapping[str, str]) -> JsonValue:
    """Returns the value of a text. `options`: options of Spark's JSON source. A text `null` is a null that is right."""
    entries = types.MapType(types.StringType(), types.ArrayType(kind))
    schema = types.StructType().add(_OUTSIDE, entries).add(_CORRUPT, types.StringType())
    wrapped = sf.concat(sf.lit(f'{{"{_OUTSIDE}":{{"v":['), text, sf.lit(f'],"{_END}":[]}}}}'))
    mode = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = sf.from_json(wrapped, schema, {**options, **mode})
    read = parsed.getField(_OUTSIDE)
    elements = sf.try_element_at(read, sf.lit("v"))
    is_right = (
        parsed.getField(_CORRUPT).isNull()
        & sf.size(sf.map_keys(read)).eqNullSafe(2)
        & sf.map_contains_key(read, _END)
        & sf.size(elements).eqNullSafe(1)
        & (~_has_non_numbers(text) | _is_strict(wrapped, {**options, **mode}))
    )
    is_certain = sf.coalesce(is_right, sf.lit(False))
    return JsonValue(sf.when(is_certain, sf.get(elements, sf.lit(0))), text.isNotNull() & ~is_certain)


def _has_non_numbers(text: Column) -> Column:
    first, *others = (text.contains(word) for word in _NON_NUMBERS)
    return reduce(or_, others, first)


def _is_strict(text: Column, options: Mapping[str, str]) -> Column:
    """Returns whether each number is one of JSON's, in fields that no type names, too."""
    schema = types.StructType().add("other", types.IntegerType()).add(_CORRUPT, types.StringType())
    return sf.from_json(text, schema, {**options, **_STRICT}).getField(_CORRUPT).isNull()
