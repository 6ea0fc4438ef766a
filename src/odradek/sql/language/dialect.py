"""ksqlDB's tokens and expressions, as a dialect of sqlglot.

Calls of functions stay as they are written (`exp.Anonymous`): what they mean is decided by the table of functions.
Names in a tree are as they are kept; each has its position in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final

from sqlglot import Token, TokenType, exp
from sqlglot import Tokenizer as SqlglotTokenizer
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser as SqlglotParser

from odradek.values.errors import Position, SqlError

_TYPE_BRACKETS: Final = {"(": 1, "<": 1, ")": -1, ">": -1}


_QUOTED: Final = frozenset({TokenType.IDENTIFIER, TokenType.STRING, TokenType.RAW_STRING})
_NAME_BEGINS: Final = re.compile(r"\w[\w@]*")
NESTING_MAX: Final = 32
"""The deepest nesting of brackets and CASE: sqlglot calls about twenty functions for each level."""
LEVELS_MAX: Final = 100
"""The most levels of a tree. A chain of ANDs or of ORs is one level."""
_NESTS: Final = {"(": 1, "[": 1, "CASE": 1, "=>": 1, ")": -1, "]": -1, "END": -1}


def _struct_field(parser: SqlglotParser, struct: exp.Expr, field: exp.Expr) -> exp.Expr:
    name = field.this if isinstance(field, exp.Column) else field
    if not isinstance(name, exp.Identifier):
        parser.raise_error("-> needs the name of a field")
    return exp.Dot(this=struct, expression=name)


class Ksql(Dialect):
    """Expressions of ksqlDB."""

    INDEX_OFFSET = 0
    DPIPE_IS_STRING_CONCAT = True
    STRICT_STRING_CONCAT = True

    class Tokenizer(SqlglotTokenizer):
        NESTED_COMMENTS: ClassVar = False
        IDENTIFIERS: ClassVar = ["`", '"']
        QUOTES: ClassVar = ["'"]
        STRING_ESCAPES: ClassVar = ["'"]
        RAW_STRINGS: ClassVar = [("$$", "$$")]
        SINGLE_TOKENS: ClassVar = {**SqlglotTokenizer.SINGLE_TOKENS, "$": TokenType.DOLLAR}
        KEYWORDS: ClassVar = {
            "||": TokenType.DPIPE,
            ">=": TokenType.GTE,
            "<=": TokenType.LTE,
            "<>": TokenType.NEQ,
            "!=": TokenType.NEQ,
            ":=": TokenType.COLON_EQ,
            "->": TokenType.ARROW,
            "=>": TokenType.FARROW,
            "AND": TokenType.AND,
            "OR": TokenType.OR,
            "NOT": TokenType.NOT,
            "IN": TokenType.IN,
            "IS": TokenType.IS,
            "NULL": TokenType.NULL,
            "LIKE": TokenType.LIKE,
            "ESCAPE": TokenType.ESCAPE,
            "BETWEEN": TokenType.BETWEEN,
            "CASE": TokenType.CASE,
            "WHEN": TokenType.WHEN,
            "THEN": TokenType.THEN,
            "ELSE": TokenType.ELSE,
            "END": TokenType.END,
            "TRUE": TokenType.TRUE,
            "FALSE": TokenType.FALSE,
            "DISTINCT": TokenType.DISTINCT,
            "AS": TokenType.ALIAS,
            "FROM": TokenType.FROM,
            "SELECT": TokenType.SELECT,
        }

    class Parser(SqlglotParser):
        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            "CAST": lambda self: self._ksql_cast(),
        }
        NO_PAREN_FUNCTIONS: ClassVar[dict[object, object]] = {}
        NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
        TYPE_LITERAL_PARSERS: ClassVar = {}
        LAMBDAS: ClassVar = {
            TokenType.FARROW: lambda self, names: exp.Lambda(
                this=self._parse_disjunction(), expressions=names
            ),
        }
        COLUMN_OPERATORS: ClassVar = {TokenType.DOT: None, TokenType.ARROW: _struct_field}
        SUBQUERY_PREDICATES: ClassVar = {}

        def expression_of(self, tokens: Sequence[Token], text: str) -> exp.Expr:
            """Returns the tree of these tokens, all of them. SqlError for what is no expression."""
            try:
                (tree,) = self._parse(type(self)._parse_expression, list(tokens), text)
            except ParseError as error:
                raise _refused(error, tokens) from None
            if tree is None:
                raise SqlError("an expression is needed here", token_position(tokens[0]))
            _check_levels(tree, tokens)
            return _with_written_names(tree)

        def _negate_range(self, this: exp.Expr | None = None) -> exp.Expr | None:
            """Turns NOT LIKE into a NOT, as for NOT IN and NOT BETWEEN; sqlglot would note it in its node for LIKE."""
            return this and self.expression(exp.Not(this=this))

        def _parse_types(self, *_: object, **__: object) -> exp.Expr | None:
            """Types occur in CAST only."""
            return None

        def _parse_type(self, *_: object, **__: object) -> exp.Expr | None:
            return self._parse_column()

        def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
            """Parses a call with OVER (…) after it. A column may be called over."""
            if this is None or not self._curr or self._curr.text.upper() != "OVER":
                return this
            if not self._next or self._next.text != "(":
                return this
            self._advance(2)
            partition = (
                self._parse_csv(self._parse_disjunction) if self._match_text_seq("PARTITION", "BY") else []
            )
            order = self._parse_csv(self._ordered) if self._match_text_seq("ORDER", "BY") else []
            spec = self._frame() if self._match_texts(("ROWS", "RANGE")) else None
            if not self._match(TokenType.R_PAREN):
                self.raise_error("OVER takes PARTITION BY, ORDER BY, and a frame of ROWS or RANGE")
            return exp.Window(
                this=this, partition_by=partition, order=exp.Order(expressions=order), spec=spec
            )

        def _frame(self) -> exp.WindowSpec:
            """Parses a frame of OVER, after its unit. With one bound, it begins there and ends with this row."""
            unit = self._prev.text.upper()
            end: tuple[str | exp.Expr, str | None] = ("CURRENT ROW", None)
            has_both = self._match(TokenType.BETWEEN)
            start = self._bound()
            if has_both:
                if not self._match(TokenType.AND):
                    self.raise_error("BETWEEN of a frame needs AND")
                end = self._bound()
            return exp.WindowSpec(kind=unit, start=start[0], start_side=start[1], end=end[0], end_side=end[1])

        def _bound(self) -> tuple[str | exp.Expr, str | None]:
            if self._match_text_seq("CURRENT", "ROW"):
                return "CURRENT ROW", None
            distance: str | exp.Expr | None = "UNBOUNDED"
            if not self._match_text_seq("UNBOUNDED"):
                distance = self._parse_primary()
                if not isinstance(distance, exp.Literal) or distance.is_string:
                    self.raise_error(
                        "a bound is CURRENT ROW, or UNBOUNDED or a number with PRECEDING or FOLLOWING"
                    )
            if not self._match_texts(("PRECEDING", "FOLLOWING")):
                self.raise_error("a bound of a frame needs PRECEDING or FOLLOWING")
            assert distance is not None
            return distance, self._prev.text.upper()

        def _ordered(self) -> exp.Expr:
            """Parses a sort key. Null is the least value, unless NULLS places it."""
            value = self._parse_disjunction()
            descending = bool(self._match_text_seq("DESC"))
            if not descending:
                self._match_text_seq("ASC")
            nulls_first = not descending
            if self._match_text_seq("NULLS"):
                nulls_first = bool(self._match_text_seq("FIRST"))
                if not nulls_first and not self._match_text_seq("LAST"):
                    self.raise_error("NULLS needs FIRST or LAST")
            return exp.Ordered(this=value, desc=descending, nulls_first=nulls_first)

        def _ksql_cast(self) -> exp.Expr:
            value = self._parse_disjunction()
            if not self._match(TokenType.ALIAS):
                self.raise_error("CAST needs AS and a type")
            start, depth = self._index, 0
            while self._curr and not (self._curr.text == ")" and depth == 0):
                depth += _TYPE_BRACKETS.get(self._curr.text, 0)
                self._advance()
            if self._index == start:
                self.raise_error("CAST needs a type after AS")
            return exp.Cast(this=value, to=exp.Var(this=written(self._tokens[start : self._index])))


def tokens_of(text: str) -> list[Token]:
    """Returns the tokens of a text. SqlError for a string or a name that does not end."""
    try:
        return _with_whole_names(Ksql.Tokenizer().tokenize(text))
    except TokenError as error:
        opened = _last_open_quote(text)
        raise SqlError("a quote or a comment is opened and does not end", opened) from error


def _with_whole_names(tokens: Sequence[Token]) -> list[Token]:
    """Joins names that sqlglot cuts: a name may begin with a digit, and may have an @ after its first letter (`1R`, `A@1`)."""
    whole: list[Token] = []
    for token in tokens:
        before = whole[-1] if whole else None
        if before is None or before.end + 1 != token.start or not _continues_name(before, token):
            whole.append(token)
            continue
        text = before.text + token.text
        whole[-1] = Token(TokenType.VAR, text, token.line, token.col, before.start, token.end)
    return whole


def _continues_name(before: Token, token: Token) -> bool:
    if _QUOTED & {before.token_type, token.token_type} or not _NAME_BEGINS.fullmatch(before.text):
        return False
    if token.token_type == TokenType.NUMBER:
        return before.text.endswith("@") and token.text.isalnum()
    return token.text == "@" or token.text.isidentifier()


def too_deep(position: Position | None) -> SqlError:
    return SqlError(
        f"expressions nest too deeply: at most {NESTING_MAX} brackets, and {LEVELS_MAX} operators, may nest",
        position,
        "Write a stream or a column for a part of it.",
    )


def check_nesting(tokens: Sequence[Token]) -> None:
    """Raises SqlError before a parser would need more stack than there is."""
    depth = 0
    for token in tokens:
        if token.token_type in (TokenType.STRING, TokenType.IDENTIFIER):
            continue
        depth = max(0, depth + _NESTS.get(token.text.upper(), 0))
        if depth > NESTING_MAX:
            raise too_deep(token_position(token))


def _check_levels(tree: exp.Expr, tokens: Sequence[Token]) -> None:
    """Looks at one level after the other, so that it needs no stack itself."""
    level = [tree]
    for _ in range(LEVELS_MAX):
        below: list[exp.Expr] = []
        for node in level:
            parts = chained(node) if isinstance(node, exp.And | exp.Or) else node.iter_expressions()
            below.extend(parts)
        if not below:
            return
        level = below
    raise too_deep(token_position(tokens[0]))


def written(tokens: Sequence[Token]) -> str:
    """Returns the text of a type."""
    return " ".join(
        f"`{token.text}`" if token.token_type == TokenType.IDENTIFIER else token.text for token in tokens
    )


def expression_of(tokens: Sequence[Token], text: str) -> exp.Expr:
    """Parses an expression; SqlError for anything else."""
    return Ksql.Parser(dialect=Ksql, error_level=ErrorLevel.IMMEDIATE).expression_of(tokens, text)


def token_position(token: Token) -> Position:
    """Returns the position where a token begins."""
    return Position(token.line, max(1, token.col - (token.end - token.start)))


def position_of(tree: exp.Expr) -> Position | None:
    """Returns the first position that a part of an expression has."""
    known = [
        Position(node.meta["line"], max(1, node.meta["col"] - (node.meta["end"] - node.meta["start"])))
        for node in tree.walk()
        if "line" in node.meta
    ]
    return min(known, default=None)


def chained(tree: exp.And | exp.Or) -> list[exp.Expr]:
    """Returns the conditions of `a AND b AND c`, in order. sqlglot nests them to the left, a level for each."""
    parts: list[exp.Expr] = []
    node: exp.Expr = tree
    while type(node) is type(tree):
        parts.append(node.expression)
        node = node.this
    parts.append(node)
    return parts[::-1]


def _with_written_names(tree: exp.Expr) -> exp.Expr:
    for name in list(tree.find_all(exp.Identifier)):
        if not name.args.get("quoted"):
            name.set("this", name.this.upper())
            name.set("quoted", True)
    for pair in list(tree.find_all(exp.PropertyEQ)):
        # sqlglot takes what is before := for a name. In a MAP it is an expression.
        parent, key = pair.parent, pair.this
        if (
            isinstance(parent, exp.Anonymous)
            and parent.name.upper() == "MAP"
            and isinstance(key, exp.Identifier)
        ):
            pair.set("this", exp.Column(this=key))
    return tree


def _refused(error: ParseError, tokens: Sequence[Token]) -> SqlError:
    details = error.errors[0] if error.errors else {}
    described = (details.get("description") or str(error)).rstrip(".")
    if described.startswith("Required keyword"):
        described = "something is missing before or after it"
    line, column, highlight = details.get("line"), details.get("col"), details.get("highlight") or ""
    if line is None or column is None:
        return SqlError(f"this is no expression: {described}", token_position(tokens[0]))
    where = Position(line, max(1, column - max(0, len(highlight) - 1)))
    return SqlError(f"unexpected {highlight!r} in an expression: {described}", where)


def _last_open_quote(text: str) -> Position | None:
    for mark in ("'", "`", '"', "/*"):
        if text.count(mark) % 2:
            start = text.rindex(mark)
            return Position(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    return None
