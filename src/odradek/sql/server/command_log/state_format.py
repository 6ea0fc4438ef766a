"""The state of a service as the content of a snapshot: JSON that has the catalog, the queries that run, and the statuses.

A source or function that several queries name is written once. What comes from a server's own settings is left out: the schema
registry with its password, and whether functions in Python are allowed. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from odradek.sql.language.statements import CreateFunction
from odradek.sql.metastore.catalog import Catalog, CreatedFunction, PersistentQuery, SqlArchive, SqlSource
from odradek.sql.queries.builds import CatalogPart, PlannedText
from odradek.sql.server.command_log.json_values import from_json, to_json
from odradek.sql.server.command_log.snapshot_records import SnapshotUnreadable
from odradek.sql.server.command_log.state import QueryRun, ServiceState
from odradek.sql.user_functions import function_of
from odradek.values.errors import SqlError
from odradek.values.formats.format_info import FormatInfo
from odradek.values.schema_registry import SchemaRegistryTerms
from odradek.values.types import SqlType

T = TypeVar("T")
_CATALOG_MEMBERS: Final = ("sources", "candidates", "queries", "archives", "functions", "types")


@dataclass(slots=True)
class _Shared:
    """Values that are written once. An index replaces a value that occurs again."""

    values: list[object] = field(default_factory=list)
    _by_identity: dict[int, tuple[int, object]] = field(default_factory=dict)
    _by_text: dict[str, int] = field(default_factory=dict)

    def index(self, value: T, written: Callable[[T], object]) -> int:
        """Returns the index of a value. `written(value)` is its JSON."""
        known = self._by_identity.get(id(value))
        if known is not None:
            return known[0]
        content = written(value)
        index = self._by_text.setdefault(json.dumps(content, sort_keys=True), len(self.values))
        if index == len(self.values):
            self.values.append(content)
        self._by_identity[id(value)] = (index, value)
        return index


# ---- to JSON


def state_content(state: ServiceState) -> bytes:
    """Returns the content: equal states have equal contents."""
    sources, functions = _Shared(), _Shared()
    catalog = state.catalog

    def sources_of(known: Mapping[str, SqlSource]) -> list[int]:
        return [sources.index(source, to_json) for source in known.values()]

    def functions_of(known: Iterable[CreatedFunction]) -> list[int]:
        return [functions.index(function, _written_function) for function in known]

    content: dict[str, object] = {
        "catalog": {
            "sources": sources_of(catalog.sources),
            "candidates": sources_of(catalog.candidates),
            "queries": [to_json(query) for query in catalog.queries.values()],
            "archives": [
                {
                    **{name: value for name, value in to_json(archive).items() if name != "source"},
                    "source": sources.index(archive.source, to_json),
                }
                for archive in catalog.archives.values()
            ],
            "functions": functions_of(catalog.created_functions.values()),
            "types": _written_types(catalog.types),
        },
        "runs": [
            {
                "query_id": run.query_id,
                "statement": run.text.statement,
                "sources": sources_of(run.text.part.sources),
                "functions": functions_of(run.text.part.functions),
                "types": _written_types(run.text.part.types),
                "starting": {
                    topic: {str(partition): offset for partition, offset in offsets.items()}
                    for topic, offsets in run.starting.items()
                },
                "carried_at": run.carried_at,
                "begun_at": run.begun_at,
            }
            for run in state.runs.values()
        ],
        "statuses": [[command_id, status] for command_id, status in state.statuses.items()],
        "applied_count": state.applied_count,
        "ended_ids": list(state.ended_ids),
    }
    content["shared"] = {"sources": sources.values, "functions": functions.values}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _written_function(function: CreatedFunction) -> dict[str, object]:
    return {
        "statement": to_json(function.statement),
        "parameters": [[name, to_json(kind)] for name, kind in function.parameters],
        "returns": to_json(function.returns),
    }


def _written_types(types: Mapping[str, SqlType]) -> dict[str, object]:
    return {name: to_json(kind) for name, kind in types.items()}


# ---- from JSON


def state_of(content: bytes, *, allows_python: bool, registry: SchemaRegistryTerms | None) -> ServiceState:
    """Returns the state of a content, under the settings of this server. SnapshotUnreadable for another form, or if the service
    has functions in Python and this server does not allow them.
    """
    try:
        return _Reading(json.loads(content), allows_python, registry).state()
    except SqlError as error:
        raise SnapshotUnreadable(f"holds what this server refuses: {error}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise SnapshotUnreadable(f"has a form that this server does not read ({reason})") from None


class _Reading:
    def __init__(
        self, content: dict[str, Any], allows_python: bool, registry: SchemaRegistryTerms | None
    ) -> None:
        self._content = content
        self._allows_python = allows_python
        self._registry = registry
        shared = content["shared"]
        self._sources = [self._with_registry(from_json(SqlSource, json)) for json in shared["sources"]]
        self._functions = [self._function(json) for json in shared["functions"]]

    def state(self) -> ServiceState:
        content = self._content
        runs = [self._run(json) for json in content["runs"]]
        state = ServiceState(
            catalog=self._catalog(content["catalog"]),
            applied_count=content["applied_count"],
            statuses=dict(content["statuses"]),
            runs={run.query_id: run for run in runs},
            ended_ids=dict.fromkeys(content.get("ended_ids", ())),  # a snapshot of an older version has none
        )
        if state.runs.keys() != state.catalog.queries.keys():
            raise ValueError("the running queries differ from the catalog's queries")
        return state

    def _catalog(self, members: dict[str, Any]) -> Catalog:
        if sorted(members) != sorted(_CATALOG_MEMBERS):
            raise ValueError(f"a catalog has other members: {', '.join(sorted(members))}")
        queries = [from_json(PersistentQuery, json) for json in members["queries"]]
        archives = [
            from_json(SqlArchive, {**json, "source": to_json(self._sources[json["source"]])})
            for json in members["archives"]
        ]
        archives = [replace(archive, source=self._with_registry(archive.source)) for archive in archives]
        catalog = Catalog(
            sources=self._named(members["sources"]),
            candidates=self._named(members["candidates"]),
            queries=MappingProxyType({query.id: query for query in queries}),
            archives=MappingProxyType({archive.name: archive for archive in archives}),
            types=MappingProxyType(_types(members["types"])),
            allows_python=self._allows_python,
            registry=self._registry,
        )
        for index in members["functions"]:
            catalog = catalog.with_function(self._functions[index])
        return catalog

    def _named(self, indexes: list[int]) -> Mapping[str, SqlSource]:
        sources = [self._sources[index] for index in indexes]
        return MappingProxyType({source.name: source for source in sources})

    def _run(self, json: dict[str, Any]) -> QueryRun:
        part = CatalogPart(
            sources=dict(self._named(json["sources"])),
            types=_types(json["types"]),
            functions=tuple(self._functions[index] for index in json["functions"]),
            allows_python=self._allows_python,
            registry=self._registry,
        )
        return QueryRun(
            query_id=json["query_id"],
            text=PlannedText(part=part, statement=json["statement"]),
            starting={
                topic: {int(partition): offset for partition, offset in offsets.items()}
                for topic, offsets in json["starting"].items()
            },
            carried_at=json["carried_at"],
            begun_at=json.get("begun_at"),
        )

    def _function(self, json: dict[str, Any]) -> CreatedFunction:
        return function_of(
            from_json(CreateFunction, json["statement"]),
            tuple((name, from_json(SqlType, kind)) for name, kind in json["parameters"]),
            from_json(SqlType, json["returns"]),
            allowed=self._allows_python,
        )

    def _with_registry(self, source: SqlSource) -> SqlSource:
        def with_terms(form: FormatInfo) -> FormatInfo:
            return replace(form, registry=self._registry)

        return replace(
            source, key_format=with_terms(source.key_format), value_format=with_terms(source.value_format)
        )


def _types(json: dict[str, Any]) -> dict[str, SqlType]:
    return {name: from_json(SqlType, kind) for name, kind in json.items()}
