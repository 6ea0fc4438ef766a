"""CREATE FUNCTION in Python (UDF, UDTF, UDAF): what the code must define, what it may not do, and what Spark runs.

    CREATE FUNCTION initials(name STRING) RETURNS STRING AS $$ "".join(word[0] for word in name.split()) $$;
    CREATE TABLE FUNCTION letters(word STRING) RETURNS STRING AS $$ list(word) $$;
    CREATE AGGREGATE FUNCTION product(value BIGINT) RETURNS BIGINT AS $$
    def start(): return 1
    def add(state, value): return state * value
    def merge(left, right): return left * right
    $$;

The code of a scalar or table function is one expression of the parameters, or defines a function that is called as in SQL
(capitals do not matter). An aggregate defines `start`, `add` and `merge`; `result` and `undo` if it wants to; without `undo`
it is for streams only.

Python has no sandbox. The code runs with the rights of the server, so that it is refused unless the server allows it. `check`
keeps accidents away: files, processes, the network and the inside of objects are not reached by names that are written down.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import Any, Final, Literal

from odradek.sql.functions.aggregates import AggregateDefinition, AggregateOverload
from odradek.sql.functions.definitions import ScalarDefinition
from odradek.sql.functions.folds import ValueFold
from odradek.sql.functions.registering import PythonFunction
from odradek.sql.functions.signatures import Overload, Parameter, Signature
from odradek.sql.functions.tables import TableDefinition
from odradek.values.errors import SqlError
from odradek.values.types import SqlType, array_of

FunctionKind = Literal["scalar", "aggregate", "table"]
MODULES: Final = frozenset(
    [
        "base64",
        "binascii",
        "bisect",
        "calendar",
        "collections",
        "colorsys",
        "datetime",
        "decimal",
        "difflib",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "html",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "random",
        "re",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "unicodedata",
        "urllib.parse",
        "uuid",
        "zlib",
        "zoneinfo",
    ]
)
"""The modules that code may import."""
_REFUSED: Final = frozenset(
    [
        "open",
        "exec",
        "eval",
        "compile",
        "input",
        "breakpoint",
        "globals",
        "locals",
        "vars",
        "getattr",
        "setattr",
        "delattr",
        "exit",
        "quit",
        "memoryview",
        "__import__",
    ]
)
_BUILTINS: Final = {name: value for name, value in vars(builtins).items() if name not in _REFUSED}


def check(name: str, code: str) -> None:
    """Raises SqlError for code that is no Python, and for what it may not do. Lines are lines of the code."""
    for node in ast.walk(_tree(name, code)):
        match node:
            case ast.Import(names=names):
                _check_modules(name, node.lineno, [alias.name for alias in names])
            case ast.ImportFrom(module=module):
                _check_modules(name, node.lineno, [module or "."])
            case ast.Name(id=used) if used in _REFUSED or used.startswith("__"):
                raise SqlError(f"Function {name}, line {node.lineno}: {used} may not be used")
            case ast.Attribute(attr=used) if used.startswith("__"):
                raise SqlError(f"Function {name}, line {node.lineno}: {used} may not be used")


def _tree(name: str, code: str) -> ast.Module:
    try:
        return ast.parse(dedent(code).strip())
    except SyntaxError as error:
        raise SqlError(f"Function {name}, line {error.lineno}: the code is no Python: {error.msg}") from None


def _check_modules(name: str, line: int, modules: list[str]) -> None:
    for module in modules:
        if module not in MODULES:
            raise SqlError(
                f"Function {name}, line {line}: {module} may not be imported",
                hint=f"There are {', '.join(sorted(MODULES))}",
            )


class UserCode:
    """The code of a function. It travels as text, and is compiled where it is used first."""

    def __init__(self, name: str, parameters: tuple[str, ...], code: str) -> None:
        self._name = name
        self._parameters = parameters
        self._code = dedent(code).strip()
        self._defined: dict[str, object] | None = None

    def __repr__(self) -> str:
        """Returns a text that is equal for functions with equal code."""
        return f"UserCode{self.__getstate__()!r}"

    def __getstate__(self) -> object:
        return self._name, self._parameters, self._code

    def __setstate__(self, state: Any) -> None:
        self._name, self._parameters, self._code = state
        self._defined = None

    def defined(self) -> dict[str, Any]:
        """Returns the functions that the code defines, by names in small letters. SqlError when it cannot run."""
        if self._defined is None:
            tree = _tree(self._name, self._code)
            scope: dict[str, object] = {
                "__builtins__": {**_BUILTINS, "__import__": __import__},
                "__name__": "odradek_function",
            }
            if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
                code = f"lambda {', '.join(self._parameters)}: (\n{self._code}\n)"
                scope[self._name.lower()] = eval(
                    compile(code, f"<{self._name}>", "eval"), scope
                )  # a user's function
            else:
                self._run(scope)
            self._defined = {name.lower(): value for name, value in scope.items()}
        return self._defined

    def _run(self, scope: dict[str, Any]) -> None:
        try:
            exec(compile(self._code, f"<{self._name}>", "exec"), scope)  # a user's function
        except Exception as error:  # noqa: BLE001 - whatever the user's code does wrong is reported to the user
            raise SqlError(
                f"Function {self._name}: its code fails: {type(error).__name__}: {error}"
            ) from None

    def function(self, name: str) -> Callable[..., Any]:
        return self.defined()[name]  # type: ignore[no-any-return]

    def __call__(self, *arguments: object) -> object:
        """Calls the code. ValueError for whatever it raises: the result is then null, as for an error of an SQL function."""
        return self._called(lambda defined_function: defined_function(*arguments))

    def rows(self, *arguments: object) -> list[object]:
        """Returns the rows of a table function. ValueError for whatever the code raises."""
        rows: list[object] = self._called(lambda defined_function: list(defined_function(*arguments) or ()))
        return rows

    def _called(self, call: Callable[[Callable[..., Any]], object]) -> Any:
        defined_function = self.function(self._name.lower())
        try:
            return call(defined_function)
        except Exception as error:  # noqa: BLE001 - the code of a user may raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from None

    def fold(self, _returns: SqlType, _constants: Sequence[object]) -> ValueFold[Any]:
        names = self.defined()
        return ValueFold(
            start=names["start"],
            add=names["add"],
            merge=names["merge"],
            undo=names.get("undo"),
            result=names.get("result", _same),
        )


def _same(state: object) -> object:
    return state


Definition = ScalarDefinition | AggregateDefinition | TableDefinition


def user_function(
    name: str,
    kind: FunctionKind,
    parameters: Sequence[tuple[str, SqlType]],
    returns: SqlType,
    code: str,
    *,
    allowed: bool,
) -> tuple[Definition, tuple[PythonFunction, ...]]:
    """Returns the definition for a library, and what a Spark session registers for it.

    `allowed`: the server's setting. SqlError: not allowed; code that is no Python, does what it may not, or does not
    define what it must; other parameters than in the statement.
    """
    if not allowed:
        raise SqlError(
            f"Function {name}: functions in Python are switched off",
            hint="They run with the rights of the server. Its setting odradek.sql.python.functions=true allows them",
        )
    check(name, code)
    names = tuple(parameter.lower() for parameter, _ in parameters)
    user_code = UserCode(name, names, code)
    _check_defined(name, kind, user_code, len(names))
    wanted = Signature(
        parameters=tuple(Parameter(name=parameter.lower(), kind=of) for parameter, of in parameters),
        returns=returns,
    )
    described = f"Made with CREATE FUNCTION, {kind}."
    if kind == "aggregate":
        overload = AggregateOverload(overload=Overload(signature=wanted, spark=""), maker=user_code.fold)
        takes_back = "undo" in user_code.defined()
        return (
            AggregateDefinition(
                name=name.upper(),
                description=described,
                overloads=(overload,),
                takes_back=takes_back,
                category="USER",
            ),
            (),
        )
    spark_name = f"odradek_user_{name.lower()}"
    overloads = (Overload(signature=wanted, spark=f"{spark_name}({{all}})"),)
    if kind == "table":
        return (
            TableDefinition(name=name.upper(), description=described, overloads=overloads, category="USER"),
            (
                PythonFunction(
                    name=spark_name, function=user_code.rows, ddl=array_of(returns).ddl, sees_nulls=True
                ),
            ),
        )
    return (
        ScalarDefinition(name=name.upper(), category="USER", description=described, overloads=overloads),
        (PythonFunction(name=spark_name, function=user_code, ddl=returns.ddl, sees_nulls=True),),
    )


def _check_defined(name: str, kind: FunctionKind, user_code: UserCode, count: int) -> None:
    defined = user_code.defined()
    wanted = {"start": 0, "add": count + 1, "merge": 2} if kind == "aggregate" else {name.lower(): count}
    optional = {"result": 1, "undo": count + 1} if kind == "aggregate" else {}
    for function, arguments in (wanted | optional).items():
        value = defined.get(function)
        if value is None and function in optional:
            continue
        if not callable(value):
            raise SqlError(
                f"Function {name}: the code defines no function {function}",
                hint=f"Write def {function}(…) with {arguments} arguments"
                + ("" if kind == "aggregate" else ", or one expression"),
            )
        try:
            inspect.signature(value).bind(*range(arguments))
        except TypeError:
            raise SqlError(f"Function {name}: {function} must take {arguments} arguments") from None
