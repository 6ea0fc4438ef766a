"""CREATE FUNCTION and DROP FUNCTION: what they change, and what is refused."""

from __future__ import annotations

import re

from odradek.sql.changes import AppliedChange, FunctionCreated, FunctionDropped, unchanged
from odradek.sql.functions.user import user_function
from odradek.sql.language.statements import CreateFunction, DropFunction
from odradek.sql.metastore.catalog import CreatedFunction, SqlCatalog
from odradek.values.errors import SqlError, nearest
from odradek.values.types import SqlType, parse_type


def create_function(catalog: SqlCatalog, statement: CreateFunction) -> AppliedChange:
    name = statement.name.upper()
    is_there = name in catalog.functions
    if is_there and name not in catalog.created_functions:
        raise SqlError(f"{name} is a function of SQL", statement.position, "Choose another name.")
    if is_there and statement.if_not_exists:
        return unchanged(catalog, f"Function {name} already exists.")
    if is_there and not statement.or_replace:
        raise SqlError(
            f"Function {name} already exists",
            statement.position,
            "Write CREATE OR REPLACE, or DROP it before.",
        )
    try:
        parameters = tuple(
            (parameter.name, parse_type(parameter.type, catalog.types)) for parameter in statement.parameters
        )
        returns = parse_type(statement.returns, catalog.types)
        function = function_of(statement, parameters, returns, allowed=catalog.allows_python)
    except SqlError as error:
        raise error.at(statement.position) from None
    word = "replaced" if is_there else "created"
    return AppliedChange(
        catalog=catalog.with_function(function),
        changes=(FunctionCreated(function=function),),
        message=f"Function {word}",
    )


def function_of(
    statement: CreateFunction,
    parameters: tuple[tuple[str, SqlType], ...],
    returns: SqlType,
    *,
    allowed: bool,
) -> CreatedFunction:
    """Returns the function of a statement whose types are known. `allowed`: the server's setting. SqlError."""
    definition, registered = user_function(
        statement.name.upper(), statement.kind, parameters, returns, statement.code, allowed=allowed
    )
    return CreatedFunction(
        statement=statement,
        parameters=parameters,
        returns=returns,
        definition=definition,
        registered=registered,
    )


def drop_function(catalog: SqlCatalog, statement: DropFunction) -> AppliedChange:
    name = statement.name.upper()
    if name not in catalog.created_functions:
        if name in catalog.functions:
            raise SqlError(f"{name} is a function of SQL: it stays", statement.position)
        if statement.if_exists:
            return unchanged(catalog, f"Function {name} does not exist.")
        raise SqlError(
            f"Function {name} does not exist", statement.position, nearest(name, catalog.created_functions)
        )
    call = re.compile(rf"\b{re.escape(name)}`?\s*\(", re.IGNORECASE)
    users = sorted(query.id for query in catalog.queries.values() if call.search(query.text))
    if users:
        raise SqlError(
            f"Cannot drop function {name}: these queries call it: {', '.join(users)}",
            statement.position,
            "TERMINATE them before.",
        )
    return AppliedChange(
        catalog=catalog.without_function(name),
        changes=(FunctionDropped(name=name),),
        message=f"Dropped function {name}",
    )
