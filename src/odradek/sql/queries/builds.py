"""Makes a query's program in the engine: plans the statement over the part of the catalog that the statement names.

That part goes to the engine with the statement. So a query means what it meant when it was run, and its start costs the same
after a thousand commands as after ten.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from odradek.model.lazy import lazy
from odradek.pipelines.outline import ProgramOutline
from odradek.sql.functions import registering
from odradek.sql.language.parsing import parse_one
from odradek.sql.metastore.catalog import Catalog, CreatedFunction, Source
from odradek.sql.planning import Plan, plan
from odradek.sql.planning.plan import as_stream
from odradek.values.formats.row_codec import shown
from odradek.values.rows import SqlValue
from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek import streams
    from odradek.pipelines import outlining
    from odradek.streams.processors.records import StreamRecord
else:
    outlining = lazy("odradek.pipelines.outlining")
    streams = lazy("odradek.streams")

_PROGRAM_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}", re.ASCII)
"""Names of operators and of changelogs follow."""
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
_CHARS_KEPT: Final = 100


def _may_name(text: str, name: str) -> bool:
    """Tells whether a text in upper case has the name, bare or in quotes, in which quotes are doubled."""
    wanted = name.upper()
    return any(form in text for form in (wanted, wanted.replace("`", "``"), wanted.replace('"', '""')))


def program_name(name: str) -> str:
    """Returns the name of a query's streams program, whose alphabet is narrower than the alphabet of SQL's names."""
    if _PROGRAM_NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{_NOT_IN_A_NAME.sub('_', name)[:_CHARS_KEPT]}-{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    """The part of a catalog that a statement names, in pickled form."""

    sources: Mapping[str, Source]
    types: Mapping[str, SqlType]
    functions: tuple[CreatedFunction, ...]
    allows_python: bool
    registry: SchemaRegistryTerms | None

    @classmethod
    def of(cls, catalog: Catalog, statement: str) -> CatalogPart:
        """Leaves out only what cannot be meant: what is kept may occur in the text by chance, as a part of a longer name."""
        text = statement.upper()
        created = catalog.created_functions
        return cls(
            sources={name: source for name, source in catalog.sources.items() if _may_name(text, name)},
            types={name: kind for name, kind in catalog.types.items() if _may_name(text, name)},
            functions=tuple(function for name, function in created.items() if _may_name(text, name)),
            allows_python=catalog.allows_python,
            registry=catalog.registry,
        )

    def catalog(self) -> Catalog:
        """Returns the catalog that has this, and the functions of SQL."""
        catalog = Catalog(
            sources=MappingProxyType(dict(self.sources)),
            types=MappingProxyType(dict(self.types)),
            allows_python=self.allows_python,
            registry=self.registry,
        )
        for function in self.functions:
            catalog = catalog.with_function(function)
        return catalog


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedText:
    """A statement, and what its names mean."""

    part: CatalogPart
    statement: str

    @classmethod
    def of(cls, catalog: Catalog, statement: str) -> PlannedText:
        """Returns the part that a statement names. `catalog` is the one before the statement."""
        return cls(part=CatalogPart.of(catalog, statement), statement=statement)

    def catalog(self) -> Catalog:
        """Returns the catalog before the statement, as far as the statement names it."""
        return self.part.catalog()

    def outline(self, name: str) -> ProgramOutline:
        """Returns the outline of the program that runs under the name. Does not import Spark."""
        app = streams.Streams(name)
        plan(self.catalog(), parse_one(self.statement)).build(app)
        return outlining.outline_of_streams(app.program)

    def plan(self, spark: SparkSession | None) -> Plan:
        """Plans the query, and registers the catalog's functions in the session: two queries may differ in a function."""
        assert spark is not None, "the engine gives its session to each program"
        catalog = self.catalog()
        registering.register(spark, catalog.registered_functions)
        return plan(catalog, parse_one(self.statement))


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentBuild:
    text: PlannedText

    def __call__(self, app: streams.Streams) -> None:
        self.text.plan(app.program.spark).build(app)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushBuild:
    text: PlannedText

    def __call__(self, app: streams.Streams, give: Callable[[list[SqlValue]], None]) -> None:
        planned = self.text.plan(app.program.spark)
        outputs = [(output.column, output.type) for output in planned.value]

        def emit_row(record: StreamRecord) -> None:
            if record.value is not None:
                give([shown(record.value[name], kind) for name, kind in outputs])

        as_stream(planned.build(app)).foreach(emit_row)
