"""How the engine makes a query's program: it applies the statements before it again, and plans the query after them.

So nothing but text goes to the engine, and a query means what it meant when it was run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from odradek.model.lazy import lazy
from odradek.pipelines.outline import ProgramOutline
from odradek.sql.applying import apply
from odradek.sql.catalog import Catalog
from odradek.sql.functions import registering
from odradek.sql.language.parsing import parse_one
from odradek.sql.planning import Plan, plan
from odradek.sql.planning.plan import as_stream
from odradek.values.row_codec import shown
from odradek.values.schema_registry import SchemaRegistryTerms

if TYPE_CHECKING:
    from odradek import streams
    from odradek.pipelines import outlining
else:
    outlining = lazy("odradek.pipelines.outlining")
    streams = lazy("odradek.streams")

_PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
"""Names of operators and of changelogs follow."""
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_CHARS_KEPT: Final = 100


def program_name(name: str) -> str:
    """The name of a query's streams program, whose alphabet is narrower than that of SQL's names."""
    if _PROGRAM_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{_NOT_IN_A_NAME.sub('_', name)[:_CHARS_KEPT]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedText:
    """`before`: the commands that are applied, with their numbers. `allows_python`: functions of users may be among them."""

    before: tuple[tuple[int, str], ...]
    statement: str
    allows_python: bool = False
    registry: SchemaRegistryTerms | None = None

    def catalog(self) -> Catalog:
        """Returns the catalog before the statement."""
        catalog = Catalog(allows_python=self.allows_python, registry=self.registry)
        for number, text in self.before:
            catalog = apply(catalog, parse_one(text), number).catalog
        return catalog

    def outline(self, name: str) -> ProgramOutline:
        """Returns the outline of the program that runs under the name. Does not import Spark."""
        app = streams.Streams(name)
        plan(self.catalog(), parse_one(self.statement)).build(app)
        return outlining.outline_of_streams(app.program)

    def plan(self, spark: Any) -> Plan:
        """Plans the query, and registers the catalog's functions in the session: two queries may differ in a function."""
        catalog = self.catalog()
        registering.register(spark, catalog.registered_functions)
        return plan(catalog, parse_one(self.statement))


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentBuild:
    text: PlannedText

    def __call__(self, app: Any) -> None:
        self.text.plan(app.program.spark).build(app)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBuild:
    text: PlannedText

    def __call__(self, app: Any, give: Callable[[list[Any]], None]) -> None:
        planned = self.text.plan(app.program.spark)
        outputs = [(output.column, output.type) for output in planned.value]

        def emit_row(record: Any) -> None:
            if record.value is not None:
                give([shown(record.value[name], kind) for name, kind in outputs])

        as_stream(planned.build(app)).foreach(emit_row)
