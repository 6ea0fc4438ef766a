"""SELECT: the clauses of a query, in ksqlDB's order."""

from __future__ import annotations

from typing import Final, Literal

from sqlglot import Token, TokenType, exp

from odradek.model.java_numbers import is_digits
from odradek.sql.language.dialect import expression_of, position_of, token_position
from odradek.sql.language.queries import (
    JoinRelation,
    JoinType,
    NamedRelation,
    Query,
    Relation,
    SelectExpression,
    SelectStar,
    SubqueryRelation,
    WindowClause,
    Within,
    mark_subquery,
)
from odradek.sql.language.reading import StatementReader
from odradek.values.errors import Position, SqlError

_SUBQUERY: Final = "\0 subquery "
"""No name of a user begins so."""
_WINDOWS: Final = ("TUMBLING", "HOPPING", "SESSION")
_ELSEWHERE: Final = {
    "ORDER": "ORDER BY is not for streams: records come in their own order; TOPK returns the largest values",
    "UNION": "UNION is not supported: write INSERT INTO … SELECT for each part",
    "INTERSECT": "INTERSECT is not supported: write a join",
    "OFFSET": "OFFSET is not supported",
}


def _begins_clause(reader: StatementReader) -> bool:
    word, after = reader.word(), reader.word(1)
    if word == "FROM" and reader.word(-1) == "DISTINCT":
        return False  # IS DISTINCT FROM
    if (
        word in ("FROM", "WHERE", "HAVING")
        or reader.follows("GROUP", "BY")
        or reader.follows("PARTITION", "BY")
    ):
        return True
    if word == "EMIT":
        return after in ("CHANGES", "FINAL")
    if word == "LIMIT":
        return is_digits(after)
    if word == "WINDOW":
        return after in (*_WINDOWS, "(") or reader.word(2) in _WINDOWS
    return word in ("ORDER", "UNION", "INTERSECT") and after != ""


def _begins_join(reader: StatementReader) -> bool:
    word, after = reader.word(), reader.word(1)
    if word == "JOIN":
        return True
    return (word in ("INNER", "CROSS") and after == "JOIN") or (
        word in ("LEFT", "RIGHT", "FULL") and after in ("JOIN", "OUTER")
    )


def _ends_item(reader: StatementReader) -> bool:
    return reader.word() == "," or _begins_clause(reader)


def _ends_condition(reader: StatementReader) -> bool:
    return _begins_clause(reader) or _begins_join(reader)


def _check_lengths(kind: str, lengths: dict[str, int], where: Position) -> None:
    """Raises SqlError for windows that Kafka Streams refuses."""
    size_ms = lengths["size_ms"]
    if size_ms == 0:
        what = "the gap of a session" if kind == "session" else "the size of a window"
        raise SqlError(f"{what} is longer than 0", where)
    advance_ms = lengths.get("advance_ms", size_ms)
    if not 0 < advance_ms <= size_ms:
        raise SqlError(
            f"windows of {size_ms} ms advance by 1 to {size_ms} ms, not by {advance_ms} ms",
            where,
            "Longer steps would leave gaps between windows.",
        )


class QueryReader:
    """Reads one query; subqueries are read by it, too."""

    def __init__(self, reader: StatementReader, text: str) -> None:
        self._reader = reader
        self._text = text

    def query(self) -> Query:
        reader, where_it_begins = self._reader, self._reader.position()
        reader.expect("SELECT")
        if reader.follows("DISTINCT"):
            raise SqlError(
                "SELECT DISTINCT is not for streams",
                reader.position(),
                "Write GROUP BY with the columns, in a table.",
            )
        select = reader.listed(self._select_item)
        reader.expect("FROM")
        relation = self._relation()
        window = self._window() if reader.follows("WINDOW") else None
        where, subqueries = self._where()
        group_by = self._expressions("GROUP", "BY")
        if window is None and reader.follows("WINDOW"):
            window = self._window()
        partition_by = self._expressions("PARTITION", "BY")
        having = self._clause("HAVING")
        emit: Literal["changes", "final"] | None = None
        if reader.accept("EMIT"):
            emit = "changes" if reader.choose("CHANGES", "FINAL") == "CHANGES" else "final"
        limit = reader.whole() if reader.accept("LIMIT") else None
        if reader.word() in _ELSEWHERE:
            raise SqlError(_ELSEWHERE[reader.word()], reader.position())
        return Query(
            select=select,
            relation=relation,
            window=window,
            where=where,
            group_by=group_by,
            partition_by=partition_by,
            having=having,
            emit=emit,
            limit=limit,
            subqueries=subqueries,
            position=where_it_begins,
        )

    def _where(self) -> tuple[exp.Expr | None, tuple[Query, ...]]:
        """Reads the condition, and its subqueries."""
        queries: list[Query] = []

        def without_subqueries(tokens: list[Token]) -> list[Token]:
            remaining: list[Token] = []
            token_index = 0
            while token_index < len(tokens):
                token = tokens[token_index]
                if token.token_type != TokenType.SELECT or not remaining or remaining[-1].text != "(":
                    remaining.append(token)
                    token_index += 1
                    continue
                inner = StatementReader(tokens, self._text, token_index)
                queries.append(QueryReader(inner, self._text).query())
                token_index = inner.index
                name = f"{_SUBQUERY}{len(queries) - 1}"
                remaining.append(
                    Token(TokenType.IDENTIFIER, name, token.line, token.col, token.start, token.end)
                )
            return remaining

        if not self._reader.accept("WHERE"):
            return None, ()
        condition = self._reader.expression(_begins_clause, without_subqueries)
        for column in list(condition.find_all(exp.Column)):
            if not column.name.startswith(_SUBQUERY):
                continue
            parent = column.parent
            if not isinstance(parent, exp.In) or parent.expressions != [column]:
                raise SqlError(
                    "a subquery is allowed only in FROM, or after IN",
                    position_of(column),
                    "Write a join for another comparison.",
                )
            mark_subquery(parent, int(column.name.removeprefix(_SUBQUERY)))
        return condition, tuple(queries)

    def _clause(self, word: str) -> exp.Expr | None:
        return self._reader.expression(_begins_clause) if self._reader.accept(word) else None

    def _expressions(self, *words: str) -> tuple[exp.Expr, ...]:
        """Expressions with commas, which may be in brackets together."""
        if not self._reader.accept(*words):
            return ()
        expressions = self._reader.listed(lambda: self._reader.expression(_ends_item))
        if len(expressions) == 1 and isinstance(expressions[0], exp.Tuple):
            return tuple(expressions[0].expressions)
        if len(expressions) == 1 and isinstance(expressions[0], exp.Paren):
            return (expressions[0].this,)
        return expressions

    def _select_item(self) -> SelectExpression | SelectStar:
        reader, where = self._reader, self._reader.position()
        if reader.accept("*"):
            return SelectStar(position=where)
        tokens = reader.until(_ends_item)
        if not tokens:
            raise SqlError("an expression is needed here", where)
        if len(tokens) > 2 and tokens[-1].text == "*" and tokens[-2].text in (".", "->"):
            return self._star_of(tokens, where)
        expression = expression_of(tokens, self._text)
        if isinstance(expression, exp.Alias):
            return SelectExpression(expression=expression.this, alias=expression.alias, position=where)
        return SelectExpression(expression=expression, alias=None, position=where)

    def _star_of(self, tokens: list[Token], where: Position) -> SelectStar:
        of = expression_of(tokens[:-2], self._text)
        if tokens[-2].text == "->":
            return SelectStar(struct=of, position=where)
        if not isinstance(of, exp.Column):
            raise SqlError(".* needs the name of a source before it", token_position(tokens[0]))
        return SelectStar(source=of.name, position=where)

    def _relation(self) -> Relation:
        reader = self._reader
        relation: Relation = self._source()
        while _begins_join(reader):
            where = reader.position()
            kind = self._join_kind()
            right = self._source()
            within = self._within() if reader.accept("WITHIN") else None
            reader.expect("ON")
            condition = reader.expression(_ends_condition)
            relation = JoinRelation(
                kind=kind, left=relation, right=right, condition=condition, within=within, position=where
            )
        if reader.follows(","):
            raise SqlError(
                "several sources need a join", reader.position(), "Write a JOIN b ON a.key = b.key."
            )
        return relation

    def _join_kind(self) -> JoinType:
        reader = self._reader
        kinds: dict[str, JoinType] = {"LEFT": "left", "RIGHT": "right", "FULL": "outer", "INNER": "inner"}
        word = reader.word()
        if word == "CROSS":
            raise SqlError("CROSS JOIN is not supported: a join needs ON", reader.position())
        if word in kinds:
            reader.expect(word)
            if word != "INNER":
                reader.accept("OUTER")
        reader.expect("JOIN")
        return kinds.get(word, "inner")

    def _source(self) -> NamedRelation | SubqueryRelation:
        reader, where = self._reader, self._reader.position()
        if reader.accept("("):
            inner = self.query()
            reader.expect(")")
            return SubqueryRelation(query=inner, alias=self._alias() or "", position=where)
        name = reader.name("the name of a stream or table")
        return NamedRelation(name=name, alias=self._alias() or name, position=where)

    def _alias(self) -> str | None:
        reader = self._reader
        if reader.accept("AS"):
            return reader.name("an alias")
        if (
            not reader.follows_name()
            or _begins_clause(reader)
            or _begins_join(reader)
            or reader.word() in ("ON", "WITHIN", *_ELSEWHERE)
        ):
            return None
        return reader.name()

    def _within(self) -> Within:
        reader = self._reader
        if reader.accept("("):
            before_ms = reader.duration_ms()
            reader.expect(",")
            after_ms = reader.duration_ms()
            reader.expect(")")
        else:
            before_ms = after_ms = reader.duration_ms()
        grace_ms = reader.duration_ms() if reader.accept("GRACE", "PERIOD") else None
        return Within(before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms)

    def _window(self) -> WindowClause:
        reader, where = self._reader, self._reader.position()
        reader.expect("WINDOW")
        kinds: dict[str, Literal["tumbling", "hopping", "session"]] = {
            "TUMBLING": "tumbling",
            "HOPPING": "hopping",
            "SESSION": "session",
        }
        if reader.word() not in _WINDOWS and reader.word(1) in _WINDOWS:
            reader.name("the name of the window")
        kind = kinds[reader.choose(*_WINDOWS)]
        reader.expect("(")
        lengths: dict[str, int] = {}
        if kind == "session":
            lengths["size_ms"] = reader.duration_ms()
        else:
            reader.expect("SIZE")
            lengths["size_ms"] = reader.duration_ms()
        while reader.accept(","):
            if kind == "hopping" and reader.accept("ADVANCE", "BY"):
                lengths["advance_ms"] = reader.duration_ms()
            elif reader.accept("RETENTION"):
                lengths["retention_ms"] = reader.duration_ms()
            elif reader.accept("GRACE"):
                reader.expect("PERIOD")
                lengths["grace_ms"] = reader.duration_ms()
            else:
                raise reader.unexpected(
                    *(["ADVANCE BY"] if kind == "hopping" else []), "RETENTION", "GRACE PERIOD"
                )
        reader.expect(")")
        if kind == "hopping" and "advance_ms" not in lengths:
            raise SqlError(
                "a hopping window needs ADVANCE BY", where, "Write (SIZE 1 HOUR, ADVANCE BY 10 MINUTES)."
            )
        _check_lengths(kind, lengths, where)
        return WindowClause(kind=kind, position=where, **lengths)
