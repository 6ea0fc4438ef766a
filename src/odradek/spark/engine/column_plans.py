"""Reads a plan's last projections as instructions over Arrow columns, for processes in Python that have the columns already.

What an operator in Python emits goes to the JVM as rows when expressions of Spark's follow it, and back to Python for a sink.
Where Arrow computes each of these expressions to the same values, the plan can end at the operator, and the sink computes
them. `spark/writing/packed_rows.py` carries the instructions out; a test compares it with Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from odradek.model.aliases import Json
from odradek.spark.engine.catalyst import SparkField, SparkParts, SparkType
from odradek.spark.engine.session import java_frame, jvm_of

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_NODES_MAX: Final = 5_000
"""More instructions than any program has that people write; an expression that nests its own copies may have more."""
_HEADERS: Final = {
    "type": "array",
    "elementType": {
        "type": "struct",
        "fields": [
            {"name": "key", "type": "string", "nullable": True, "metadata": {}},
            {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
        ],
    },
    "containsNull": True,
}
_INTEGERS: Final = ("byte", "short", "integer", "long")
"""Integers as Spark's JSON names them, each before the wider ones."""
_COMPARED: Final = frozenset({*_INTEGERS, "boolean", "string", "binary"})
"""Types whose values Arrow compares as Spark does. Spark has one NaN, which is equal to itself."""
_COMPARISONS: Final = {
    "EqualTo": "equal",
    "LessThan": "less",
    "LessThanOrEqual": "less_equal",
    "GreaterThan": "greater",
    "GreaterThanOrEqual": "greater_equal",
}
_TRUE: Final = ("constant", True, "boolean")
_FALSE: Final = ("constant", False, "boolean")


class ColumnPlan(NamedTuple):
    """The projections and filters above a function in Python.

    `below`: what the function was given. `columns`: what it returns. `instructions`: each is a name and its arguments; numbers
    of earlier instructions among them. `keep`: the number of the one that selects the rows; None: all stay. `outputs`: the
    number for each column that the plan returns.
    """

    below: DataFrame
    columns: StructType
    instructions: Sequence[Sequence[Json]]
    keep: int | None
    outputs: Mapping[str, int]


class _UnknownExpressionError(Exception):
    """The plan has an expression that is left to Spark."""


class _Struct(NamedTuple):
    """A struct that is never built: the instruction for where it is not null, and its fields, null where it is null."""

    is_valid: int
    fields: tuple[_Term, ...]


_Term = int | _Struct
"""What an expression became: the number of an instruction, or a struct."""


def column_plan(rows: DataFrame, function: str) -> ColumnPlan | None:
    """Returns the plan of `rows` as instructions over what the function of `mapInArrow` with this name returns; None where the
    plan has anything else above it, or expressions that only Spark computes.
    """
    frame = java_frame(rows)
    node = frame.queryExecution().analyzed()
    above: list[JavaObject] = []
    while node.getClass().getSimpleName() in ("Project", "Filter"):
        above.append(node)
        node = node.child()
    if node.getClass().getSimpleName() != "MapInArrow" or node.functionExpr().name() != function:
        return None
    try:
        reading = _Reading(json.loads(node.schema().json()), _ids(node.output()))
        for step in (node, *reversed(above)):
            _check_collations(step)
        for step in reversed(above):
            reading.add(step)
        if len(reading.instructions) > _NODES_MAX:
            return None
        outputs = reading.outputs(rows.columns)
    except _UnknownExpressionError:
        return None
    below = jvm_of(rows.sparkSession).org.apache.spark.sql.classic.Dataset.ofRows(
        frame.sparkSession(), node.child()
    )
    return ColumnPlan(
        below=DataFrame(below, rows.sparkSession),
        columns=StructType.fromJson(json.loads(node.schema().json())),
        instructions=reading.instructions,
        keep=reading.keep,
        outputs=outputs,
    )


def _check_collations(node: JavaObject) -> None:
    """Raises for texts that compare by a collation: the types of expressions in JSON leave it out."""
    expressions = node.expressions()
    texts = [node.schema().json(), *(expressions.apply(index).sql() for index in range(expressions.size()))]
    if any("collat" in text.lower() for text in texts):
        raise _UnknownExpressionError


def _ids(attributes: JavaObject) -> list[int]:
    return [attributes.apply(index).exprId().id() for index in range(attributes.size())]


class _Tree(NamedTuple):
    """An expression, as Spark writes it in JSON."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[_Tree, ...]

    @classmethod
    def of(cls, text: str) -> _Tree:
        return cls._next(iter(json.loads(text)))

    @classmethod
    def _next(cls, nodes: Iterator[Mapping[str, Any]]) -> _Tree:
        node = next(nodes)
        kind = node["class"].removeprefix(_EXPRESSIONS)
        return cls(kind, node, tuple(cls._next(nodes) for _ in range(node["num-children"])))

    @property
    def id(self) -> int:
        return int(self.fields["exprId"]["id"])


class _Reading:
    """Reads projections from the lowest one up. Equal instructions are one."""

    def __init__(self, schema: SparkParts, ids: Sequence[int]) -> None:
        self.instructions: list[tuple[Json, ...]] = []
        self.keep: int | None = None
        self._numbers: dict[tuple[Json, ...], int] = {}
        self._terms: dict[int, _Term] = {}
        self._types: dict[int, SparkType] = {}
        self._ids = list(ids)
        for index, (id_, field) in enumerate(zip(ids, schema["fields"], strict=True)):
            self._types[id_] = field["type"]
            self._terms[id_] = self._column_term(self._add("column", index), field["type"])

    def add(self, node: JavaObject) -> None:
        """Reads the next node of the plan, a projection or a filter."""
        expressions = node.expressions()
        trees = [_Tree.of(expressions.apply(index).toJSON()) for index in range(expressions.size())]
        if node.getClass().getSimpleName() == "Filter":
            for tree in trees:
                condition = self._number(tree)
                self.keep = condition if self.keep is None else self._add("and", self.keep, condition)
            return
        terms = {tree.id: self._term(tree) for tree in trees}
        types = {tree.id: self._type(tree) for tree in trees}
        self._terms, self._types, self._ids = terms, types, [tree.id for tree in trees]

    def outputs(self, names: Sequence[str]) -> dict[str, int]:
        """Returns the number of the instruction for each column of the last projection."""
        return {name: _plain(self._terms[id_]) for name, id_ in zip(names, self._ids, strict=True)}

    # -- instructions

    def _add(self, *instruction: Json) -> int:
        number = self._numbers.get((*map(_typed, instruction),))
        if number is None:
            number = self._numbers[(*map(_typed, instruction),)] = len(self.instructions)
            self.instructions.append(instruction)
        return number

    def _column_term(self, number: int, kind: SparkType) -> _Term:
        """Returns the term for values of a type: a struct falls into its fields."""
        if isinstance(kind, str) or kind["type"] != "struct":
            return number
        fields = tuple(
            self._column_term(self._add("field", number, index), field["type"])
            for index, field in enumerate(kind["fields"])
        )
        return _Struct(self._add("is_valid", number), fields)

    def _is(self, number: int, constant: tuple[Json, ...]) -> bool:
        return self.instructions[number] == constant

    def _if(self, condition: int, then: _Term, otherwise: _Term) -> _Term:
        if self._is(condition, _TRUE) or then == otherwise:
            return then
        if self._is(condition, _FALSE):
            return otherwise
        if isinstance(then, _Struct) and isinstance(otherwise, _Struct):
            is_valid = _plain(self._if(condition, then.is_valid, otherwise.is_valid))
            pairs = zip(then.fields, otherwise.fields, strict=True)
            return _Struct(is_valid, tuple(self._if(condition, *pair) for pair in pairs))
        return self._add("if", condition, self._total(then), self._total(otherwise))

    def _total(self, term: _Term) -> int:
        """Returns the number of an instruction that never raises: Arrow computes it for the rows that do without it, too."""
        number = _plain(term)
        if self.instructions[number][0] == "timestamp":
            raise _UnknownExpressionError
        return number

    def _is_valid(self, term: _Term) -> int:
        if isinstance(term, _Struct):
            return term.is_valid
        self._total(term)
        if self.instructions[term][0] == "constant":
            return self._add(*(_TRUE if self.instructions[term][1] is not None else _FALSE))
        return self._add("is_valid", term)

    def _null(self, kind: SparkType) -> _Term:
        if not isinstance(kind, str) and kind["type"] == "struct":
            nothing = tuple(self._null(field["type"]) for field in kind["fields"])
            return _Struct(self._add(*_FALSE), nothing)
        return self._add("constant", None, _type_name(kind))

    # -- expressions

    def _number(self, tree: _Tree) -> int:
        return _plain(self._term(tree))

    def _numbers_of(self, tree: _Tree) -> list[int]:
        return [self._number(child) for child in tree.children]

    def _term(self, tree: _Tree) -> _Term:
        read = _READERS.get(tree.kind)
        if read is None:
            raise _UnknownExpressionError
        return read(self, tree)

    def attribute(self, tree: _Tree) -> _Term:
        return self._terms[tree.id]

    def alias(self, tree: _Tree) -> _Term:
        return self._term(tree.children[0])

    def literal(self, tree: _Tree) -> _Term:
        kind, value = tree.fields["dataType"], tree.fields["value"]
        if value is None:
            return self._null(kind)
        if kind == "string":
            return self._add("constant", value, kind)
        if kind in _INTEGERS:
            return self._add("constant", int(value), kind)
        if kind == "boolean":
            return self._add("constant", value == "true", kind)
        raise _UnknownExpressionError

    def field(self, tree: _Tree) -> _Term:
        struct = self._term(tree.children[0])
        if not isinstance(struct, _Struct):
            raise _UnknownExpressionError
        return struct.fields[int(tree.fields["ordinal"])]

    def struct(self, tree: _Tree) -> _Term:
        return _Struct(self._add(*_TRUE), tuple(map(self._term, tree.children[1::2])))

    def concat(self, tree: _Tree) -> _Term:
        kinds = {kind for child in tree.children if isinstance(kind := self._type(child), str)}
        if len(kinds) != 1 or not kinds <= {"string", "binary"}:
            raise _UnknownExpressionError
        numbers = self._numbers_of(tree)
        return numbers[0] if len(numbers) == 1 else self._add("concat", *numbers)

    def cast(self, tree: _Tree) -> _Term:
        (child,) = tree.children
        source, target = self._type(child), tree.fields["dataType"]
        if source == "void":
            return self._null(target)
        if child.kind == "CreateArray" and not child.children and target == _HEADERS:
            return self._add("no_headers")
        if source == target:
            return self._term(child)
        if not isinstance(source, str) or not isinstance(target, str) or not _casts(source, target):
            raise _UnknownExpressionError
        return self._add("cast", self._number(child), target)

    def coalesce(self, tree: _Tree) -> _Term:
        first, *others = map(self._term, tree.children)
        return self._add("coalesce", _plain(first), *map(self._total, others))

    def case(self, tree: _Tree) -> _Term:
        terms = list(map(self._term, tree.children))
        value = terms.pop() if len(terms) % 2 else self._null(self._type(tree))
        for index in range(len(terms) - 2, -1, -2):
            value = self._if(_plain(terms[index]), terms[index + 1], value)
        return value

    def and_or(self, tree: _Tree) -> _Term:
        return self._add(tree.kind.lower(), *self._numbers_of(tree))

    def negation(self, tree: _Tree) -> _Term:
        return self._add("not", *self._numbers_of(tree))

    def is_null(self, tree: _Tree) -> _Term:
        return self._add("not", self._is_valid(self._term(tree.children[0])))

    def is_not_null(self, tree: _Tree) -> _Term:
        return self._is_valid(self._term(tree.children[0]))

    def comparison(self, tree: _Tree) -> _Term:
        left, right = tree.children
        if tree.kind == "GreaterThanOrEqual" and left.kind == "SparkPartitionID" and _is_zero(right):
            return self._add(*_TRUE)  # `frames.computed_here`
        kind = self._type(left)
        if not isinstance(kind, str) or kind not in _COMPARED or kind != self._type(right):
            raise _UnknownExpressionError
        return self._add("compare", _COMPARISONS[tree.kind], *self._numbers_of(tree))

    def milliseconds(self, tree: _Tree) -> _Term:
        if self._type(tree.children[0]) != "long":
            raise _UnknownExpressionError
        return self._add("timestamp", *self._numbers_of(tree))

    def _type(self, tree: _Tree) -> SparkType:
        """Returns an expression's type in Spark's JSON; raises for one that is not known here."""
        kind = _TYPES.get(tree.kind)
        if kind is not None:
            return kind
        if tree.kind == "AttributeReference":
            return self._types[tree.id]
        if tree.kind in ("Literal", "Cast"):
            literal: SparkType = tree.fields["dataType"]
            return literal
        if tree.kind == "GetStructField":
            struct = self._type(tree.children[0])
            if isinstance(struct, str):
                raise _UnknownExpressionError
            return struct["fields"][int(tree.fields["ordinal"])]["type"]
        if tree.kind == "CreateNamedStruct":
            names = [child.fields["value"] for child in tree.children[::2]]
            kinds = map(self._type, tree.children[1::2])
            fields: list[SparkField] = [
                {"name": name, "type": kind, "nullable": True}
                for name, kind in zip(names, kinds, strict=True)
            ]
            return {"type": "struct", "fields": fields}
        if tree.kind in ("Alias", "Concat", "Coalesce"):
            return self._type(tree.children[0])
        if tree.kind in ("CaseWhen", "If"):
            return self._type(tree.children[1])
        raise _UnknownExpressionError

    def choice(self, tree: _Tree) -> _Term:
        condition, then, otherwise = map(self._term, tree.children)
        return self._if(_plain(condition), then, otherwise)


_TYPES: Final = {
    **dict.fromkeys([*_COMPARISONS, "And", "Or", "Not", "IsNull", "IsNotNull"], "boolean"),
    "SparkPartitionID": "integer",
    "MillisToTimestamp": "timestamp",
    "CreateArray": "array",
}
_READERS: Final = {
    "AttributeReference": _Reading.attribute,
    "Alias": _Reading.alias,
    "Literal": _Reading.literal,
    "GetStructField": _Reading.field,
    "CreateNamedStruct": _Reading.struct,
    "Concat": _Reading.concat,
    "Cast": _Reading.cast,
    "Coalesce": _Reading.coalesce,
    "CaseWhen": _Reading.case,
    "If": _Reading.choice,
    "And": _Reading.and_or,
    "Or": _Reading.and_or,
    "Not": _Reading.negation,
    "IsNull": _Reading.is_null,
    "IsNotNull": _Reading.is_not_null,
    **dict.fromkeys(_COMPARISONS, _Reading.comparison),
    "MillisToTimestamp": _Reading.milliseconds,
}


def _is_zero(tree: _Tree) -> bool:
    return tree.kind == "Literal" and tree.fields["dataType"] == "integer" and tree.fields["value"] == "0"


def _plain(term: _Term) -> int:
    if isinstance(term, _Struct):
        raise _UnknownExpressionError
    return term


def _typed(argument: Json) -> Json:
    """Returns the argument such that true is not 1."""
    return f"{argument}?" if isinstance(argument, bool) else argument


def _type_name(kind: SparkType) -> str:
    """Returns the name of a type in an instruction."""
    if kind == _HEADERS:
        return "headers"
    if isinstance(kind, str) and kind in _COMPARED:
        return kind
    raise _UnknownExpressionError


def _casts(source: str, target: str) -> bool:
    """Tells whether Arrow casts every value as Spark does."""
    if target == "string":
        return source in (*_INTEGERS, "boolean")
    if target == "binary":
        return source == "string"
    integers = source in _INTEGERS and target in _INTEGERS
    return integers and _INTEGERS.index(source) < _INTEGERS.index(target)
