"""Text: cutting, padding, masking, regular expressions, encodings; and BYTES, which share most of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from odradek.model.java_numbers import is_digits
from odradek.sql.functions.definitions import ScalarDefinition, scalar
from odradek.sql.functions.literals import is_null, literal
from odradek.sql.functions.signatures import Call
from odradek.values.errors import SqlError

_TEXT: Final = "STRING"
_BYTES: Final = "BYTES"
_REGEXP: Final = "REGEXP"
_MASKS: Final = ("'X'", "'x'", "'n'", "'-'")
_GROUP: Final = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|(\((?!\?)|\(\?<[A-Za-z])")


# ---- encodings


def _hex_digits(text: str) -> str:
    """Returns SQL that strips 0x or X'…'; it puts a 0 before an odd number of digits after 0x."""
    return (
        f"CASE WHEN {text} RLIKE '^0x' THEN concat(if(length({text}) % 2 = 1, '0', ''), substr({text}, 3)) "
        f"WHEN {text} RLIKE r'^[xX]\\x27.*\\x27$' THEN substr({text}, 3, length({text}) - 3) ELSE {text} END"
    )


def _bytes_of_base64(text: str, *, strips: bool) -> str:
    """ENCODE reads as Commons Codec does: also the alphabet of URLs, and no other signs. TO_BYTES reads as Java does."""
    if strips:
        text = rf"regexp_replace(translate(regexp_replace({text}, r'(?s)=.*', ''), '-_', '+/'), r'[^A-Za-z0-9+/]', '')"
        text = f"if(length({text}) % 4 = 1, left({text}, length({text}) - 1), {text})"
    padded = f"rpad({text}, cast(ceil(length({text}) / 4) * 4 as int), '=')"
    data = f"try_to_binary({padded}, 'base64')"
    return data if strips else f"if({text} RLIKE r'{_BASE64}', {data}, NULL)"


_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?$"


def _bytes_of(text: str, encoding: str, *, strips: bool) -> str:
    digits = _hex_digits(text) if strips else text
    return (
        f"CASE lower({encoding}) "
        f"WHEN 'hex' THEN if(length({digits}) % 2 = 0 AND {digits} RLIKE '^[0-9A-Fa-f]*$', unhex({digits}), NULL) "
        f"WHEN 'utf8' THEN encode({text}, 'UTF-8') "
        f"WHEN 'ascii' THEN encode(regexp_replace({text}, r'[^\\x00-\\x7F]', '?'), 'US-ASCII') "
        f"WHEN 'base64' THEN {_bytes_of_base64(text, strips=strips)} END"
    )


def _text_of(data: str, encoding: str, *, of_bytes: bool) -> str:
    """Returns Spark SQL for bytes as text. FROM_BYTES writes hex in capitals, and ENCODE in small letters."""
    digits = f"hex({data})" if of_bytes else f"lower(hex({data}))"
    base64 = f"regexp_replace(base64({data}), r'\\s', '')"
    return (
        f"CASE lower({encoding}) WHEN 'hex' THEN {digits} "
        f"WHEN 'utf8' THEN make_valid_utf8(cast({data} as string)) "
        f"WHEN 'ascii' THEN regexp_replace(decode({data}, 'ISO-8859-1'), r'[\\x80-\\xFF]', '\\uFFFD') "
        f"WHEN 'base64' THEN {base64} END"
    )


def _encode(call: Call) -> str:
    text, source, target = call.texts
    data = _bytes_of(text, source, strips=True)
    return f"if(lower({source}) = lower({target}), NULL, {_text_of(f'({data})', target, of_bytes=False)})"


# ---- masks


def _masked(text: str, masks: tuple[str, ...]) -> str:
    signs = []
    for mask in masks or _MASKS:
        if not is_null(mask):
            letter = literal(mask)
            if letter is None:
                raise SqlError(
                    "The masking characters are written as they are: one character in quotes, or NULL"
                )
            if len(letter) != 1:
                raise SqlError(f"Invalid mask character. Must be only single character, but was '{letter}'")
        signs.append("NULL" if is_null(mask) else mask)
    return f"mask({text}, {', '.join(signs)})"


def _mask(call: Call) -> str:
    return _masked(call.texts[0], call.texts[1:])


def _mask_part(plain_left: str | None, plain_right: str | None, hidden: str) -> Callable[[Call], str]:
    """Masks one part of the text and keeps the other. {0} is the text, {1} the number of characters."""

    def text(call: Call) -> str:
        value, count, *masks = call.texts

        def filled(part: str) -> str:
            return part.replace("{0}", value).replace("{1}", count)

        parts = [
            filled(plain_left) if plain_left else None,
            _masked(filled(hidden), tuple(masks)),
            filled(plain_right) if plain_right else None,
        ]
        return f"if({count} < 0, NULL, concat({', '.join(part for part in parts if part)}))"

    return text


_REST: Final = "greatest(length({0}) - {1}, 0)"
_MASK_PARAMETERS: Final = "STRING upper, STRING lower, STRING digit, STRING other"


def _mask_function(name: str, description: str, part: Callable[[Call], str]) -> ScalarDefinition:
    return scalar(
        name,
        _TEXT,
        description,
        ("STRING text, INT count -> STRING", part),
        (f"STRING text, INT count, {_MASK_PARAMETERS} -> STRING", part),
    )


# ---- regular expressions


def group_count(pattern: str) -> int:
    """Counts the capturing groups of a regular expression of Java."""
    return sum(1 for match in _GROUP.finditer(pattern) if match[1])


def _regexp(call: Call) -> tuple[str, str, str] | None:
    """Returns Spark SQL for pattern, input and group; None when the pattern has no such group."""
    pattern, text, *groups = call.texts
    group = groups[0] if groups else "0"
    written = literal(pattern)
    if is_digits(group) and written is not None:
        return None if int(group) > group_count(written) else (pattern, text, group)
    if is_digits(group):
        return f"concat({pattern}, '{'(?:(?!)())?' * int(group)}')", text, group
    return pattern, text, f"if({group} < 0, 0, {group})"


def _extract(call: Call) -> str:
    parts = _regexp(call)
    if parts is None:
        return "cast(NULL as string)"
    pattern, text, group = parts
    return f"if({text} RLIKE {pattern}, regexp_extract({text}, {pattern}, {group}), NULL)"


def _extract_all(call: Call) -> str:
    parts = _regexp(call)
    if parts is None:
        return "cast(NULL as array<string>)"
    pattern, text, group = parts
    return f"regexp_extract_all({text}, {pattern}, {group})"


# ---- the rest


def _coalesced(empty: str) -> Callable[[Call], str]:
    return lambda call: f"concat({', '.join(f'coalesce({text}, {empty})' for text in call.texts)})"


def _joined_bytes(call: Call) -> str:
    return f"unhex(concat_ws({', '.join(f'hex({text})' for text in call.texts)}))"


PADDED_MAX: Final = 1 << 20
"""The longest result of LPAD and RPAD, in characters or bytes: one row must not take the memory of all."""


def _padded(side: str, empty: str) -> str:
    return f"if({{1}} < 0 OR {{1}} > {PADDED_MAX} OR {{2}} = {empty}, NULL, {side}({{0}}, {{1}}, {{2}}))"


def _cut(length: str | None) -> str:
    start = "if({1} < 0, greatest(length({0}) + {1}, 0) + 1, if({1} = 0, 1, {1}))"
    return f"substring({{0}}, {start})" if length is None else f"substring({{0}}, {start}, {length})"


def split_text(text: str, delimiter: str) -> str:
    """Returns Spark SQL that splits at a delimiter that is no regular expression; at every character when it is empty."""
    quoted = f"concat(r'\\Q', replace({delimiter}, r'\\E', r'\\E\\\\E\\Q'), r'\\E')"
    return f"if({delimiter} = '', split({text}, ''), split({text}, {quoted}, -1))"


def _split_to_map(call: Call) -> str:
    text, entry, pair = call.texts
    entries = f"filter({split_text(text, entry)}, __entry -> __entry <> '')"
    pairs = (
        f"filter(transform({entries}, __entry -> {split_text('__entry', pair)}), __pair -> size(__pair) > 1)"
    )
    keyed = f"map_from_entries(transform({pairs}, __pair -> struct(__pair[0], __pair[1])))"
    return f"if({entry} = '' OR {pair} = '' OR {entry} = {pair}, NULL, {keyed})"


def _number_from(sign: str, size: int) -> Callable[[Call], str]:
    """{0}: the bytes. The second argument, if any, is the order."""

    def text(call: Call) -> str:
        data = call.texts[0]
        order = f"upper({call.texts[1]})" if len(call.texts) > 1 else "'BIG_ENDIAN'"
        ordered = (
            f"CASE {order} WHEN 'BIG_ENDIAN' THEN {data} WHEN 'LITTLE_ENDIAN' "
            f"THEN unhex(array_join(reverse(transform(sequence(0, {size - 1}), "
            f"__place -> hex(substring({data}, __place + 1, 1)))), '')) END"
        )
        whole = f"cast(conv(hex({ordered}), 16, -10) as bigint)"
        value = {"int": f"cast({whole} as int)", "bigint": whole}.get(
            sign, f"odradek_double_from_bytes({ordered})"
        )
        return f"if(length({data}) = {size}, {value}, NULL)"

    return text


def _from_bytes(name: str, kind: str, size: int) -> ScalarDefinition:
    spark = _number_from(kind.lower(), size)
    return scalar(
        name,
        _BYTES,
        f"The {kind} in {size} bytes, 'BIG_ENDIAN' (the default) or 'LITTLE_ENDIAN'; null of another number of bytes.",
        (f"BYTES value -> {kind}", spark),
        (f"BYTES value, STRING order -> {kind}", spark),
    )


_CODE_POINT: Final = (
    "if({0} BETWEEN 0 AND 1114111 AND NOT {0} BETWEEN 55296 AND 57343, "
    "decode(unhex(lpad(hex({0}), 8, '0')), 'UTF-32'), NULL)"
)
_ESCAPES: Final = r"if({0} RLIKE r'^(\\u[0-9a-fA-F]{4})+$', decode(unhex(regexp_replace({0}, r'\\u', '')), 'UTF-16BE'), NULL)"
_CAPITALS: Final = (
    r"array_join(transform(split(lower({0}), r'(?<=\s)'), "
    "__word -> concat(upper(left(__word, 1)), substr(__word, 2))), '')"
)
_UUID_TEXT: Final = (
    "if(length({0}) = 16, regexp_replace(lower(hex({0})), "
    "r'^(.{8})(.{4})(.{4})(.{4})(.{12})$', '$1-$2-$3-$4-$5'), NULL)"
)

STRINGS: Final[tuple[ScalarDefinition, ...]] = (
    _from_bytes("BIGINT_FROM_BYTES", "BIGINT", 8),
    scalar(
        "CHR",
        _TEXT,
        "The character with this code point, or of an escape such as '\\u004b'; null when there is none.",
        ("INT code -> STRING", _CODE_POINT),
        ("STRING escape -> STRING", _ESCAPES),
    ),
    scalar(
        "CONCAT",
        _TEXT,
        "All of them, one after another; nulls are left out.",
        ("STRING text, STRING... others -> STRING", _coalesced("''")),
        ("BYTES data, BYTES... others -> BYTES", _coalesced("X''")),
    ),
    scalar(
        "CONCAT_WS",
        _TEXT,
        "All of them, with a separator in between; nulls are left out, and null when the separator is.",
        ("STRING separator, STRING text, STRING... others -> STRING", "concat_ws({all})"),
        ("BYTES separator, BYTES data, BYTES... others -> BYTES", _joined_bytes),
    ),
    _from_bytes("DOUBLE_FROM_BYTES", "DOUBLE", 8),
    scalar(
        "ENCODE",
        _TEXT,
        "Text from one encoding to another: 'hex', 'utf8', 'ascii', 'base64'.",
        ("STRING text, STRING from, STRING to -> STRING", _encode),
    ),
    scalar(
        "FROM_BYTES",
        _BYTES,
        "Bytes as text: 'hex', 'utf8', 'ascii', 'base64'.",
        ("BYTES data, STRING encoding -> STRING", lambda call: _text_of(*call.texts, of_bytes=True)),
    ),
    scalar(
        "INITCAP",
        _TEXT,
        "Each word with a capital letter, the rest in small ones.",
        ("STRING text -> STRING", _CAPITALS),
    ),
    scalar(
        "INSTR",
        _TEXT,
        "Where a text begins in another, from 1 on; 0 when it is not there. A negative position searches from the end.",
        ("STRING text, STRING part -> INT", "coalesce(if({0} = '', 0, instr({0}, {1})), 0)"),
        ("STRING text, STRING part, INT position -> INT", "odradek_instr({0}, {1}, {2}, 1)"),
        ("STRING text, STRING part, INT position, INT occurrence -> INT", "odradek_instr({all})"),
    ),
    _from_bytes("INT_FROM_BYTES", "INT", 4),
    scalar("LCASE", _TEXT, "In small letters.", ("STRING text -> STRING", "lower({0})")),
    scalar(
        "LEN",
        _TEXT,
        "The number of characters, or of bytes.",
        ("STRING text -> INT", "length({0})"),
        ("BYTES data -> INT", "length({0})"),
        note="A character outside the basic plane, such as an emoji, counts once; ksqlDB counts two.",
    ),
    scalar(
        "LPAD",
        _TEXT,
        "Filled on the left, or cut, to a length. Null of a negative length, one above 1,048,576, or an empty padding.",
        ("STRING text, INT length, STRING padding -> STRING", _padded("lpad", "''")),
        ("BYTES data, INT length, BYTES padding -> BYTES", _padded("lpad", "X''")),
    ),
    scalar(
        "MASK",
        _TEXT,
        "Capital letters as X, small ones as x, digits as n, all else as -; or as you choose. A null keeps that kind.",
        ("STRING text -> STRING", _mask),
        (f"STRING text, {_MASK_PARAMETERS} -> STRING", _mask),
    ),
    _mask_function(
        "MASK_KEEP_LEFT",
        "As MASK, but the first characters stay.",
        _mask_part("left({0}, {1})", None, "substr({0}, {1} + 1)"),
    ),
    _mask_function(
        "MASK_KEEP_RIGHT",
        "As MASK, but the last characters stay.",
        _mask_part(None, "right({0}, {1})", f"left({{0}}, {_REST})"),
    ),
    _mask_function(
        "MASK_LEFT",
        "As MASK, only of the first characters.",
        _mask_part(None, "substr({0}, {1} + 1)", "left({0}, {1})"),
    ),
    _mask_function(
        "MASK_RIGHT",
        "As MASK, only of the last characters.",
        _mask_part(f"left({{0}}, {_REST})", None, "right({0}, {1})"),
    ),
    scalar(
        "MD5",
        _TEXT,
        "The MD5 digest of a text in UTF-8, or of bytes, as 32 hexadecimal digits in small letters.",
        ("STRING text -> STRING", "md5(cast({0} as binary))"),
        ("BYTES data -> STRING", "md5({0})"),
    ),
    scalar(
        "REGEXP_EXTRACT",
        _REGEXP,
        "The first match of a regular expression, or a group of it; null when there is none.",
        ("STRING pattern, STRING text -> STRING", _extract),
        ("STRING pattern, STRING text, INT group -> STRING", _extract),
        note="A group that takes no part in a match is an empty text, not null.",
    ),
    scalar(
        "REGEXP_EXTRACT_ALL",
        _REGEXP,
        "All matches of a regular expression, or a group of each.",
        ("STRING pattern, STRING text -> ARRAY<STRING>", _extract_all),
        ("STRING pattern, STRING text, INT group -> ARRAY<STRING>", _extract_all),
    ),
    scalar(
        "REGEXP_REPLACE",
        _REGEXP,
        "The text with each match replaced; $1 in the replacement is the first group.",
        ("STRING text, STRING pattern, STRING replacement -> STRING", "regexp_replace({0}, {1}, {2})"),
    ),
    scalar(
        "REGEXP_SPLIT_TO_ARRAY",
        _REGEXP,
        "The text, split at each match; at every character when the expression is empty.",
        (
            "STRING text, STRING pattern -> ARRAY<STRING>",
            "if({1} = '', split({0}, ''), split({0}, {1}, -1))",
        ),
    ),
    scalar(
        "REPLACE",
        _TEXT,
        "The text with each occurrence of a part replaced.",
        ("STRING text, STRING old, STRING new -> STRING", "replace({0}, {1}, {2})"),
    ),
    scalar(
        "RPAD",
        _TEXT,
        "Filled on the right, or cut, to a length. Null of a negative length, one above 1,048,576, or an empty padding.",
        ("STRING text, INT length, STRING padding -> STRING", _padded("rpad", "''")),
        ("BYTES data, INT length, BYTES padding -> BYTES", _padded("rpad", "X''")),
    ),
    scalar(
        "SPLIT",
        _TEXT,
        "The parts between a delimiter; every character when it is empty.",
        ("STRING text, STRING delimiter -> ARRAY<STRING>", lambda call: split_text(*call.texts)),
        ("BYTES data, BYTES delimiter -> ARRAY<BYTES>", "odradek_split_bytes({0}, {1})"),
    ),
    scalar(
        "SPLIT_TO_MAP",
        "MAP",
        "A map of pairs such as 'a=1,b=2'. Null of equal or empty delimiters; of equal keys the last one stays.",
        ("STRING text, STRING entry_delimiter, STRING pair_delimiter -> MAP<STRING, STRING>", _split_to_map),
    ),
    scalar(
        "SUBSTRING",
        _TEXT,
        "The part from a position on, which counts from 1, or from the end if it is negative.",
        ("STRING text, INT position -> STRING", _cut(None)),
        ("STRING text, INT position, INT length -> STRING", _cut("if({2} < 0, 0, {2})")),
        ("BYTES data, INT position -> BYTES", _cut(None)),
        ("BYTES data, INT position, INT length -> BYTES", _cut("if({2} < 0, 0, {2})")),
    ),
    scalar(
        "TO_BYTES",
        _BYTES,
        "Text as bytes: 'hex', 'utf8', 'ascii', 'base64'.",
        ("STRING text, STRING encoding -> BYTES", lambda call: _bytes_of(*call.texts, strips=False)),
    ),
    scalar(
        "TRIM",
        _TEXT,
        "Without spaces and control characters at both ends.",
        ("STRING text -> STRING", r"regexp_replace({0}, r'^[\x00-\x20]+|[\x00-\x20]+$', '')"),
    ),
    scalar("UCASE", _TEXT, "In capital letters.", ("STRING text -> STRING", "upper({0})")),
    scalar(
        "UUID",
        _TEXT,
        "A random UUID (RFC 4122, version 4), or the one in 16 bytes.",
        ("-> STRING", "uuid()"),
        ("BYTES data -> STRING", _UUID_TEXT),
    ),
)
