"""CREATE FUNCTION and DROP FUNCTION: what they change, and what is refused."""

from __future__ import annotations

import re

from odradek.sql.catalog import CreatedFunction, SqlCatalog
from odradek.sql.changes import AppliedChange, FunctionCreated, FunctionDropped, unchanged
from odradek.sql.functions.user import user_function
from odradek.sql.language.statements import CreateFunction, DropFunction
from odradek.values.errors import SqlError, nearest
from odradek.values.types import parse_type


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
        parameters = [
            (parameter.name, parse_type(parameter.type, catalog.types)) for parameter in statement.parameters
        ]
        definition, registered = user_function(
            name,
            statement.kind,
            parameters,
            parse_type(statement.returns, catalog.types),
            statement.code,
            allowed=catalog.allows_python,
        )
    except SqlError as error:
        raise error.at(statement.position) from None
    made = CreatedFunction(statement=statement, definition=definition, registered=registered)
    word = "replaced" if is_there else "created"
    return AppliedChange(
        catalog=catalog.with_function(made), changes=(FunctionCreated(made=made),), message=f"Function {word}"
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
