"""Names of its own for each case, so that many cases share a server."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlglot import Token, TokenType

from odradek.sql.language.dialect import tokens_of

_BEFORE_A_SOURCE: Final = frozenset({"STREAM", "TABLE", "EXISTS", "INTO", "FROM", "JOIN"})
_READS: Final = frozenset({"FROM", "JOIN"})
_AFTER_AN_UNNAMED_SOURCE: Final = frozenset(
    {"WHERE", "GROUP", "PARTITION", "HAVING", "EMIT", "LIMIT", "WINDOW", "WITHIN", "ON", ";", ")"}
    | {"JOIN", "INNER", "LEFT", "RIGHT", "FULL"}
)


def renamed(statements: str, names: Collection[str], topics: Collection[str], suffix: str) -> str:
    """The statements with a suffix behind the names of sources and topics. In queries the old name stays as an alias."""
    tokens = tokens_of(statements)
    text = statements
    for index in range(len(tokens) - 1, -1, -1):  # from the end, so that positions stay
        token = tokens[index]
        before = tokens[index - 1].text.upper() if index else ""
        if token.token_type is TokenType.STRING and token.text in topics and before in ("=", "TOPIC"):
            written = f"'{token.text}{suffix}'"
        elif before in _BEFORE_A_SOURCE and _name(token) in names:
            written = f"`{_name(token)}{suffix}`"
            if before in _READS and _has_no_alias(tokens, index):
                written += f" AS `{_name(token)}`"
        else:
            continue
        text = text[: token.start] + written + text[token.end + 1 :]
    return text


def _name(token: Token) -> str:
    is_quoted = token.token_type is TokenType.IDENTIFIER
    return token.text if is_quoted else token.text.upper()


def _has_no_alias(tokens: list[Token], index: int) -> bool:
    follower = tokens[index + 1].text.upper() if index + 1 < len(tokens) else ";"
    return follower in _AFTER_AN_UNNAMED_SOURCE
