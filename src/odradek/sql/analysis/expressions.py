"""Expressions: their types, and what Spark computes. ksqlDB's rules where they are not Spark's:

- a comparison with null is false; what fails is null;
- whole numbers divide to whole numbers, and by zero to null; doubles as in IEEE 754;
- `+` puts texts together, and writes a null one as `null` (so does what ksqlDB compiles);
- arrays count from 1, and from the end with negative numbers; an element outside is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final

from sqlglot import exp

from odradek.sql.analysis.casts import cast, comparable, comparison_with_null, converted
from odradek.sql.analysis.like import like_regex, like_regex_of
from odradek.sql.analysis.listed import beside, in_one_type
from odradek.sql.analysis.scope import NameScope
from odradek.sql.analysis.times import TIME_COLUMNS, TIME_LITERALS, epoch_ms, time_literal
from odradek.sql.analysis.typed_text import TypedText, arithmetic, number, quoted
from odradek.sql.language.dialect import chained, position_of
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.values.errors import Position, SqlError
from odradek.values.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    NULL,
    STRING,
    SqlType,
    array_of,
    common_type,
    lambda_of,
    map_of,
    parse_type,
    struct_of_fields,
)

_COMPARISONS: Final = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_TEXT_CHARS_MAX: Final = 4 << 20
"""Some operators write an operand twice, so that deep nesting would grow without end."""
_ONLY_EQUAL: Final = ("BOOLEAN", "MAP", "STRUCT", "ARRAY")
"""Types whose values have no order."""
_NAN_GUARDS: Final = {"=": (0,), "!=": (0, 1), "<": (1,), "<=": (1,), ">": (0,), ">=": (0,)}
"""Which sides of a comparison must not be NaN. For Spark NaN equals itself and is the largest number; for ksqlDB neither."""
OVER_REFUSAL: Final = "OVER needs all rows of a table at once, which a running query never has"
OVER_HINT: Final = "Write a pull query over a table, without EMIT CHANGES; or TOPK, EARLIEST_BY_OFFSET and such with GROUP BY."
_UNITS: Final = ("MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS", "WEEKS", "MONTHS", "YEARS")


_Operand = tuple[exp.Expr, TypedText]
"""An operand that is compared several times is compiled once."""
AggregateHook = Callable[[str, exp.Anonymous], TypedText]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpressionCompiler:
    """Compiles expressions to Spark SQL, with their types.

    `replaced`: the columns of whole expressions after GROUP BY, by their canonical text; then no other column may be used.
    `on_aggregate`: what a call of an aggregate function becomes; None: it is refused.
    """

    scope: NameScope
    catalog: SqlCatalog
    replaced: Mapping[str, TypedText] | None = None
    on_aggregate: AggregateHook | None = None
    variables: Mapping[str, SqlType] = field(default_factory=dict)
    """The variables of the enclosing lambdas, with their types."""

    def typed(self, tree: exp.Expr) -> TypedText:
        """Returns the text and the type of an expression; SqlError with a position for what is wrong."""
        try:
            if self.replaced is not None:
                known = self.replaced.get(self.canonical(tree))
                if known is not None:
                    return known
            compile_node = _NODES.get(type(tree))
            if compile_node is None:
                raise SqlError(f"{tree.sql()!r} is not supported in an expression")
            compiled = compile_node(self, tree)
            if len(compiled.text) > _TEXT_CHARS_MAX:
                raise SqlError("this expression is too large", hint="Write a stream for a part of it")
            return compiled
        except SqlError as error:
            raise error.at(position_of(tree)) from None

    def as_type(self, tree: exp.Expr, wanted: SqlType, what: str) -> str:
        """Returns the text of an expression that must be of a type."""
        typed = self.typed(tree)
        if common_type(typed.type, wanted) != wanted:
            raise SqlError(f"{what} has the type {typed.type}, and needs {wanted}", position_of(tree))
        return converted(typed.text, typed.type, wanted)

    def canonical(self, tree: exp.Expr) -> str:
        """Returns a text that is equal for equal expressions, even if their columns are qualified differently."""

        def resolved(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name not in self.variables:
                try:
                    return exp.Var(this=self.scope.resolve(node.name, node.table or None).text)
                except SqlError:
                    return node
            return node.this if isinstance(node, exp.Paren) else node

        return tree.copy().transform(resolved).sql()

    # ---- names and constants

    def column(self, tree: exp.Column) -> TypedText:
        name, source = tree.name, tree.table or None
        if source is None and name in self.variables:
            return TypedText(lambda_name(name), self.variables[name])
        if tree.args.get("db"):
            raise SqlError(f"{tree.sql()} has too many parts: write source.column, and -> for fields")
        if source is not None and source not in self.scope.sources and self._is_struct(source):
            raise SqlError(f"'{source}' is no source", hint=f"A field of a STRUCT is {source}->{name}")
        column = self.scope.resolve(name, source)
        if self.replaced is not None:
            raise SqlError(
                f"Non-aggregate SELECT expression(s) not part of GROUP BY: {name}",
                hint="Add it to GROUP BY, or aggregate it, such as LATEST_BY_OFFSET(…)",
            )
        return TypedText(column.text, column.type)

    def _is_struct(self, name: str) -> bool:
        return any(column.name == name and column.type.kind == "STRUCT" for column in self.scope.columns)

    def literal(self, tree: exp.Literal) -> TypedText:
        if tree.is_string:
            return TypedText(quoted(tree.this), STRING)
        return number(tree.this)

    def over(self, _: exp.Window) -> TypedText:
        raise SqlError(OVER_REFUSAL, hint=OVER_HINT)

    def boolean(self, tree: exp.Boolean) -> TypedText:
        return TypedText("true" if tree.this else "false", BOOLEAN)

    def null(self, _: exp.Null) -> TypedText:
        return TypedText("null", NULL)

    def paren(self, tree: exp.Paren) -> TypedText:
        inner = self.typed(tree.this)
        return TypedText(f"({inner.text})", inner.type)

    # ---- logic

    def comparison(self, tree: exp.Binary) -> TypedText:
        return self._tested(_operand(self, tree.left), _operand(self, tree.right), _COMPARISONS[type(tree)])

    def _tested(self, left: _Operand, right: _Operand, sign: str) -> TypedText:
        """Returns the comparison, which is false if a side is null or NaN."""
        return TypedText(f"coalesce({self._test(left, right, sign)}, false)", BOOLEAN)

    def _test(self, left: _Operand, right: _Operand, sign: str) -> str:
        sides = self._compared(left, right, sign)
        guards = [
            f" and not isnan({sides[guarded].text})"
            for guarded in _NAN_GUARDS[sign]
            if sides[guarded].type == DOUBLE and not _is_literal((left, right)[guarded][0])
        ]
        return f"{sides[0].text} {sign} {sides[1].text}{''.join(guards)}"

    def _compared(self, left: _Operand, right: _Operand, sign: str) -> tuple[TypedText, TypedText]:
        """Returns both sides as values that Spark compares, with their original types."""
        (left_tree, left_value), (right_tree, right_value) = left, right
        if NULL in (left_value.type, right_value.type):
            raise comparison_with_null(left_value.type, right_value.type)
        sides = self._times(left_tree, left_value, right_tree, right_value) or (left_value, right_value)
        for side in sides:
            if side.type.kind in _ONLY_EQUAL and sign not in ("=", "!="):
                raise SqlError(
                    f"Operator {sign} cannot be used to compare {side.type}", hint="Write = or <>."
                )
        texts = comparable(*sides)
        if texts is None:
            raise SqlError(
                f"Operator {sign} cannot be used to compare {sides[0].type} and {sides[1].type}",
                hint="Write a CAST",
            )
        return TypedText(texts[0], sides[0].type), TypedText(texts[1], sides[1].type)

    def _times(
        self, left: exp.Expr, left_value: TypedText, right: exp.Expr, right_value: TypedText
    ) -> tuple[TypedText, TypedText] | None:
        """Types a time written as text, in a comparison with ROWTIME, bounds of windows, a DATE, a TIME or a TIMESTAMP."""
        for column, value, text, is_left in (
            (left, left_value, right, True),
            (right, right_value, left, False),
        ):
            if not (isinstance(text, exp.Literal) and text.is_string):
                continue
            if isinstance(column, exp.Column) and column.name in TIME_COLUMNS:
                constant = TypedText(f"{epoch_ms(text.this, position_of(column))}L", BIGINT)
            elif value.type.kind in TIME_LITERALS:
                constant = TypedText(time_literal(text.this, value.type), value.type)
            else:
                continue
            return (value, constant) if is_left else (constant, value)
        return None

    def distinct_from(self, tree: exp.NullSafeNEQ | exp.NullSafeEQ) -> TypedText:
        left, right = self._compared(_operand(self, tree.left), _operand(self, tree.right), "=")
        same = f"({left.text} <=> {right.text})"
        return TypedText(same if isinstance(tree, exp.NullSafeEQ) else f"(not {same})", BOOLEAN)

    def connector(self, tree: exp.And | exp.Or) -> TypedText:
        """Types a chain of ANDs, or of ORs, of any length."""
        word = "and" if isinstance(tree, exp.And) else "or"
        parts = [
            self.as_type(part, BOOLEAN, f"the operand {'after' if index else 'before'} {word.upper()}")
            for index, part in enumerate(chained(tree))
        ]
        return TypedText(f"({f' {word} '.join(parts)})", BOOLEAN)

    def negation(self, tree: exp.Not) -> TypedText:
        return TypedText(f"(not {self.as_type(tree.this, BOOLEAN, 'the operand after NOT')})", BOOLEAN)

    def is_null(self, tree: exp.Is) -> TypedText:
        if not isinstance(tree.expression, exp.Null):
            raise SqlError("IS needs NULL or NOT NULL", hint="Write = TRUE")
        return TypedText(f"({self.typed(tree.this).text} is null)", BOOLEAN)

    def between(self, tree: exp.Between) -> TypedText:
        value = _operand(self, tree.this)
        at_least = self._test(value, _operand(self, tree.args["low"]), ">=")
        at_most = self._test(value, _operand(self, tree.args["high"]), "<=")
        return TypedText(f"coalesce({at_least} and {at_most}, false)", BOOLEAN)

    def in_list(self, tree: exp.In) -> TypedText:
        """Members that need the same conversion of the value are in one IN, so that the text grows with the list only."""
        if tree.args.get("query"):
            raise SqlError(
                "IN (SELECT …) is a condition of WHERE on its own, or between ANDs",
                position_of(tree),
                "Write a LEFT JOIN with the table for anything else.",
            )
        if not tree.expressions:
            raise SqlError("IN needs a value in its brackets", hint="Write IN (1, 2).")
        value = _operand(self, tree.this)
        lists: dict[str, list[str]] = {}
        tests: list[str] = []
        for member in _listed(self, beside(tree.this, tree.expressions), value[1].type):
            if isinstance(member[0], exp.Null):
                continue  # nothing equals it
            left, right = self._compared(value, member, "=")
            if DOUBLE in (left.type, right.type):
                tests.append(self._tested(value, member, "=").text)
            else:
                lists.setdefault(left.text, []).append(right.text)
        tests += [f"coalesce({left} in ({', '.join(members)}), false)" for left, members in lists.items()]
        return TypedText(f"({' or '.join(tests) or 'false'})", BOOLEAN)

    def like(self, tree: exp.Like, escape: str | None = None) -> TypedText:
        """The result is null if a side is null, where ksqlDB's evaluation fails."""
        value = self.as_type(tree.this, STRING, "the operand before LIKE")
        pattern = tree.expression
        if isinstance(pattern, exp.Literal) and pattern.is_string:
            return TypedText(f"({value} rlike {like_regex(pattern.this, escape)})", BOOLEAN)
        compiled = self.as_type(pattern, STRING, "the operand after LIKE")
        return TypedText(f"({value} rlike {like_regex_of(compiled, escape)})", BOOLEAN)

    def escaped(self, tree: exp.Escape) -> TypedText:
        escape = tree.expression
        if (
            not isinstance(tree.this, exp.Like)
            or not isinstance(escape, exp.Literal)
            or len(escape.this) != 1
        ):
            raise SqlError("ESCAPE needs one character, after LIKE")
        return self.like(tree.this, escape.this)

    def case(self, tree: exp.Case) -> TypedText:
        operand = None if tree.this is None else _operand(self, tree.this)
        conditions: list[str] = []
        results: list[TypedText] = []
        for branch in tree.args["ifs"]:
            if operand is None:
                conditions.append(self.as_type(branch.this, BOOLEAN, "the condition after WHEN"))
            else:
                conditions.append(self._tested(operand, _operand(self, branch.this), "=").text)
            results.append(self.typed(branch.args["true"]))
        default = tree.args.get("default")
        otherwise = TypedText("null", NULL) if default is None else self.typed(default)
        kind = self._one_type([*results, otherwise], "the results of CASE")
        branches = " ".join(
            f"when {condition} then {converted(*branch_value, kind)}"
            for condition, branch_value in zip(conditions, results, strict=True)
        )
        return TypedText(f"(case {branches} else {converted(*otherwise, kind)} end)", kind)

    def _one_type(self, values: list[TypedText], what: str) -> SqlType:
        kind = NULL
        for value in values:
            common = common_type(kind, value.type)
            if common is None:
                raise SqlError(f"{what} have different types: {kind} and {value.type}", hint="Write a CAST")
            kind = common
        return kind

    # ---- arithmetic

    def arithmetic(self, tree: exp.Binary) -> TypedText:
        sign, left, right = _ARITHMETIC[type(tree)], self.typed(tree.left), self.typed(tree.right)
        if sign == "+" and left.type.kind == right.type.kind == "STRING":
            return self._joined(left, right)
        if not (left.type.is_number and right.type.is_number):
            hint = "Write a CAST, or CONCAT" if sign == "+" else "Write a CAST"
            raise SqlError(f"Unsupported arithmetic types. {left.type} {sign} {right.type}", hint=hint)
        return arithmetic(sign, left, right)

    def concatenation(self, tree: exp.DPipe) -> TypedText:
        left, right = self.typed(tree.left), self.typed(tree.right)
        if not left.type.kind == right.type.kind == "STRING":
            raise SqlError(
                f"|| needs two texts, not {left.type} and {right.type}", hint="Write CAST(… AS STRING)"
            )
        return self._joined(left, right)

    def _joined(self, left: TypedText, right: TypedText) -> TypedText:
        return TypedText(f"concat(coalesce({left.text}, 'null'), coalesce({right.text}, 'null'))", STRING)

    def negative(self, tree: exp.Neg) -> TypedText:
        if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
            return number(f"-{tree.this.this}")
        operand = self.typed(tree.this)
        if not operand.type.is_number:
            raise SqlError(f"a {operand.type} has no negative")
        return TypedText(f"(- {operand.text})", operand.type)

    # ---- parts and wholes

    def field(self, tree: exp.Dot) -> TypedText:
        struct = self.typed(tree.this)
        if struct.type.kind != "STRUCT":
            raise SqlError(f"-> needs a STRUCT before it, not a {struct.type}")
        name = tree.expression.name
        return TypedText(f"{struct.text}.`{name}`", struct.type.field(name))

    def element(self, tree: exp.Bracket) -> TypedText:
        whole = self.typed(tree.this)
        if len(tree.expressions) != 1:
            raise SqlError("[ ] needs one index")
        (index,) = tree.expressions
        if whole.type.kind == "MAP":
            key = self.as_type(index, whole.type.map_key, "the key")
            return TypedText(f"try_element_at({whole.text}, {key})", whole.type.element)
        if whole.type.kind != "ARRAY":
            raise SqlError(f"[ ] needs an ARRAY or a MAP before it, not a {whole.type}")
        position = self.as_type(index, INTEGER, "the index")
        return TypedText(f"try_element_at({whole.text}, nullif({position}, 0))", whole.type.element)

    def array(self, tree: exp.Array) -> TypedText:
        if not tree.expressions:
            raise SqlError("Array constructor cannot be empty", hint="Write a CAST of NULL to an ARRAY")
        values = [value for _, value in _listed(self, tree.expressions)]
        kind = self._one_type(values, "the elements of ARRAY")
        return TypedText(f"array({', '.join(converted(*value, kind) for value in values)})", array_of(kind))

    def _pairs(self, tree: exp.Anonymous, what: str) -> list[tuple[exp.Expr, exp.Expr]]:
        pairs = []
        for argument in tree.expressions:
            if not isinstance(argument, exp.PropertyEQ):
                raise SqlError(f"{what} needs pairs with := between them", position_of(argument))
            pairs.append((argument.this, argument.expression))
        return pairs

    def map(self, tree: exp.Anonymous) -> TypedText:
        pairs = self._pairs(tree, "MAP")
        if not pairs:
            raise SqlError("Map constructor cannot be empty")
        keys = [key for _, key in _listed(self, [key for key, _ in pairs])]
        values = [value for _, value in _listed(self, [value for _, value in pairs])]
        wrong = next((key.type for key in keys if key.type != STRING), None)
        if wrong is not None:
            raise SqlError(f"the keys of a MAP are STRING, not {wrong}", hint="Write CAST(… AS STRING) := ….")
        kind = self._one_type(values, "the values of MAP")
        if kind == NULL:
            raise SqlError("the values of MAP need a type", hint="Write CAST(NULL AS …).")
        # A null key is the text null, as in a map of Java that is written.
        inside = ", ".join(
            f"coalesce({key.text}, 'null'), {converted(*value, kind)}"
            for key, value in zip(keys, values, strict=True)
        )
        return TypedText(f"map({inside})", map_of(STRING, kind))

    def struct(self, tree: exp.Anonymous) -> TypedText:
        fields: list[tuple[str, TypedText]] = []
        for name, value in self._pairs(tree, "STRUCT"):
            if not isinstance(name, (exp.Column, exp.Identifier)):
                raise SqlError("a field of STRUCT needs a name before :=", position_of(name))
            if any(name.name == known for known, _ in fields):
                raise SqlError(f"Duplicate field names found in STRUCT: `{name.name}`", position_of(name))
            fields.append((name.name, self.typed(value)))
        inside = ", ".join(f"{quoted(name)}, {value.text}" for name, value in fields)
        kind = struct_of_fields([(name, value.type) for name, value in fields])
        return TypedText(f"named_struct({inside})", kind)

    def cast(self, tree: exp.Cast) -> TypedText:
        operand = self.typed(tree.this)
        wanted = parse_type(tree.args["to"].name, self.catalog.types)
        return TypedText(cast(operand.text, operand.type, wanted), wanted)

    # ---- functions

    def call(self, tree: exp.Anonymous) -> TypedText:
        name = tree.name.upper()
        if name == "MAP" and (not tree.expressions or isinstance(tree.expressions[0], exp.PropertyEQ)):
            return self.map(tree)
        if name == "STRUCT":
            return self.struct(tree)
        functions = self.catalog.functions
        if functions.is_aggregate(name):
            if self.on_aggregate is None:
                raise SqlError(
                    f"{name} is an aggregate function: use it in SELECT and HAVING of a query with GROUP BY"
                )
            return self.on_aggregate(name, tree)
        if functions.is_table(name):
            raise SqlError(f"{name} is a table function: it must be a whole column of SELECT")
        arguments = self.arguments(name, tree)
        function = functions.scalar(name, [argument.type for argument in arguments])
        return TypedText(function.spark([argument.text for argument in arguments]), function.returns)

    def arguments(self, name: str, tree: exp.Anonymous) -> list[TypedText]:
        """Types the arguments. Lambdas come last: the types of the other arguments define their variables' types."""
        compiled: list[TypedText | None] = [
            None if isinstance(argument, exp.Lambda) else self._argument(argument)
            for argument in tree.expressions
        ]
        if None not in compiled:
            return [argument for argument in compiled if argument is not None]
        kinds = [SqlType(kind="LAMBDA") if argument is None else argument.type for argument in compiled]
        inputs = self.catalog.functions.lambda_inputs(name, kinds)
        return [
            self._lambda(tree.expressions[index], inputs[index] or ()) if argument is None else argument
            for index, argument in enumerate(compiled)
        ]

    def _argument(self, tree: exp.Expr) -> TypedText:
        is_unit = isinstance(tree, exp.Column) and not tree.table and tree.name in _UNITS
        if is_unit and not any(column.name == tree.name for column in self.scope.columns):
            return TypedText(tree.name, SqlType(kind="UNIT"))
        if isinstance(tree, exp.Star):
            raise SqlError("* can be an argument of COUNT(*) only")
        return self.typed(tree)

    def _lambda(self, tree: exp.Lambda, inputs: tuple[SqlType, ...]) -> TypedText:
        names = [parameter.name for parameter in tree.expressions]
        if len(names) != len(inputs):
            raise SqlError(
                f"the lambda has {len(names)} arguments, and gets {len(inputs)}", position_of(tree)
            )
        inner = replace(self, variables={**self.variables, **dict(zip(names, inputs, strict=True))})
        body = inner.typed(tree.this)
        shown = ", ".join(map(lambda_name, names))
        return TypedText(f"({shown}) -> {body.text}", lambda_of(body.type))


def _operand(compiler: ExpressionCompiler, tree: exp.Expr) -> _Operand:
    return tree, compiler.typed(tree)


def _listed(
    compiler: ExpressionCompiler, trees: Sequence[exp.Expr], kind: SqlType = NULL
) -> Iterator[_Operand]:
    """Values of one list, whose literals take the type of the others."""
    return in_one_type(trees, compiler.typed, lambda value: value.type, kind)


def _is_literal(tree: exp.Expr) -> bool:
    return isinstance(tree.this if isinstance(tree, exp.Neg) else tree, exp.Literal)


def lambda_name(name: str) -> str:
    """Returns a variable of a lambda in Spark: no column is called so."""
    return f"l_{name.encode().hex()}"


def constant_of(tree: exp.Expr) -> Any:
    """Returns the value of a literal, with its sign; None for another expression."""
    if isinstance(tree, exp.Paren):
        return constant_of(tree.this)
    if isinstance(tree, exp.Boolean):
        return bool(tree.this)
    if isinstance(tree, exp.Neg):
        value = constant_of(tree.this)
        return -value if isinstance(value, (int, float, Decimal)) else None
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return tree.this
    if "e" in tree.this.lower():
        return float(tree.this)
    return Decimal(tree.this) if "." in tree.this else int(tree.this)


_NODES: Final[dict[type[exp.Expr], Callable[[ExpressionCompiler, Any], TypedText]]] = {
    exp.Column: ExpressionCompiler.column,
    exp.Literal: ExpressionCompiler.literal,
    exp.Boolean: ExpressionCompiler.boolean,
    exp.Window: ExpressionCompiler.over,
    exp.Null: ExpressionCompiler.null,
    exp.Paren: ExpressionCompiler.paren,
    **dict.fromkeys(_COMPARISONS, ExpressionCompiler.comparison),
    **dict.fromkeys(_ARITHMETIC, ExpressionCompiler.arithmetic),
    exp.NullSafeEQ: ExpressionCompiler.distinct_from,
    exp.NullSafeNEQ: ExpressionCompiler.distinct_from,
    exp.And: ExpressionCompiler.connector,
    exp.Or: ExpressionCompiler.connector,
    exp.Not: ExpressionCompiler.negation,
    exp.Is: ExpressionCompiler.is_null,
    exp.Between: ExpressionCompiler.between,
    exp.In: ExpressionCompiler.in_list,
    exp.Like: ExpressionCompiler.like,
    exp.Escape: ExpressionCompiler.escaped,
    exp.Case: ExpressionCompiler.case,
    exp.DPipe: ExpressionCompiler.concatenation,
    exp.Neg: ExpressionCompiler.negative,
    exp.Dot: ExpressionCompiler.field,
    exp.Bracket: ExpressionCompiler.element,
    exp.Array: ExpressionCompiler.array,
    exp.Cast: ExpressionCompiler.cast,
    exp.Anonymous: ExpressionCompiler.call,
}


def where_of(tree: exp.Expr, otherwise: Position) -> Position:
    return position_of(tree) or otherwise
