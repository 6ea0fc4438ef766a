"""The server's archives: their locations, which are checked before a statement applies, their contents, and their deletion."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.sql.changes import AppliedChange, ArchiveCreated, ArchiveDropped, SourceCreated
from odradek.sql.language import statements as language
from odradek.sql.metastore.catalog import Catalog, SqlArchive
from odradek.sql.server.entities import Entity, QueryHealth, entity
from odradek.sql.server.parts import ServerParts
from odradek.values.errors import SqlError

if TYPE_CHECKING:
    from odradek.archive import opening
    from odradek.archive.checks import status as archive_checks
    from odradek.archive.checks import topic_side
    from odradek.archive.checks.status import ArchiveStatus
    from odradek.archive.store.location import ArchiveLocation
else:
    archive_checks = lazy("odradek.archive.checks.status")
    opening = lazy("odradek.archive.opening")
    topic_side = lazy("odradek.archive.checks.topic_side")

T = TypeVar("T")
_PATIENCE_S: Final = 30.0
"""How long a request waits for a store that does not answer."""
ENDPOINTS_SETTING: Final = "odradek.sql.archive.endpoints"
_AWS: Final = re.compile(r"https://s3(?:-fips)?(?:\.dualstack)?(?:[.-][a-z0-9-]+)?\.amazonaws\.com(?:\.cn)?")
_DEFAULT_FORMAT: Final = "delta"


def check_endpoint(location: ArchiveLocation, allowed: frozenset[str]) -> None:
    """Raises SqlError for a store that the operator did not allow: the server signs requests there with its own keys."""
    if not location.is_s3 or location.endpoint is None:
        return
    own = {os.environ.get(name, "").rstrip("/") for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")}
    if location.endpoint in {endpoint.rstrip("/") for endpoint in allowed} | own:
        return
    if _AWS.fullmatch(location.endpoint):
        return
    raise SqlError(
        f"this server does not connect to the endpoint {location.endpoint}",
        hint=f"The operator allows it with --set {ENDPOINTS_SETTING}={location.endpoint}",
    )


class Archives:
    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts

    # ---- statements that change something

    async def check(self, statement: language.Statement, applied: AppliedChange) -> None:
        """Checks that the topic exists, and that the location can be an archive. Files are deleted only if they belong to this
        archive. Raises SqlError."""
        new_topics = {change.source.topic for change in applied.changes if isinstance(change, SourceCreated)}
        for change in applied.changes:
            try:
                match change:
                    case ArchiveCreated(archive=archive):
                        check_endpoint(archive.location, self._parts.archive_endpoints)
                        topic = archive.source.topic
                        if topic not in new_topics and await self._parts.topics.sizes(topic) is None:
                            raise SqlError(f"Kafka topic does not exist: {topic}")
                        await _in_thread(archive, partial(_check_location, archive))
                    case ArchiveDropped(archive=archive, delete_files=True):
                        await _in_thread(archive, partial(_check_may_be_deleted, archive))
            except SqlError as error:
                raise error.at(statement.position) from None
            except OdradekError as error:
                raise SqlError(str(error), statement.position) from None

    async def delete_files(self, applied: AppliedChange) -> None:
        """Deletes the files of archives that were dropped with DELETE FILES, once nothing writes there any more."""
        for change in applied.changes:
            if isinstance(change, ArchiveDropped) and change.delete_files:
                await self._parts.engine.stopped(change.archive.query_id)
                await _in_thread(change.archive, partial(_delete, change.archive))

    # ---- questions

    def shown(self, text: str, healths: Callable[[str], QueryHealth]) -> Entity:
        archives = [
            _listed(self._parts.catalog, archive, healths)
            for _, archive in sorted(self._parts.catalog.archives.items())
        ]
        return entity("archives", text, archives=archives)

    async def described(
        self, statement: language.DescribeArchive, healths: Callable[[str], QueryHealth]
    ) -> Entity:
        archive = self._parts.catalog.archive(statement.name, statement.position)
        health = healths(archive.query_id)
        description = {
            **_listed(self._parts.catalog, archive, healths),
            "value": "COLUMNS" if archive.with_columns else archive.columns.value.upper(),
            "partitionBy": [derived.name for derived in archive.columns.partition_by],
            "everyMs": archive.every_ms,
            "fileBytes": archive.file_bytes,
            "fields": archive.source.schema_json(),
            "statement": archive.text,
            "problem": health.problem,
            "extended": statement.extended,
        }
        if statement.extended:
            status = await _in_thread(archive, lambda: self._status(archive))
            description |= _holds(status)
        return entity("archiveDescription", statement.text + ";", archiveDescription=description)

    def _status(self, archive: SqlArchive) -> ArchiveStatus | None:
        table = opening.find_archive(archive.location, archive.catalog)
        if table is None:
            return None
        return archive_checks.archive_status(table, topic_side.BrokerTopics(*self._parts.broker_settings))


def described_archive(archive: SqlArchive, query_id: str, health: QueryHealth | None) -> Entity:
    """Returns the query of an archive, as EXPLAIN describes queries. `health`: None of a query that does not run."""
    source = archive.source
    rows = (
        f"columns of {source.name}"
        if archive.with_columns
        else f"values as {archive.columns.value}, as they were"
    )
    plan = [
        f"write to archive {archive.name} at {archive.location}, {_format_name(archive)}, a batch at least every"
        f" {archive.every_ms / 1000:g} s",
        f"  native: {rows}, with topic, partition and offset",
        f"    native: read topic {source.topic} from where the archive ends",
    ]
    return {
        "id": query_id,
        "statementText": archive.text,
        "windowType": None if source.window is None else source.window.kind.upper(),
        "fields": source.schema_json(),
        "sources": [source.name],
        "sinks": [archive.name],
        "topology": "",
        "executionPlan": "\n".join(plan),
        "overriddenProperties": {},
        "queryType": "PERSISTENT",
        **({"state": None, "queryErrors": []} if health is None else health.members),
        "tasksMetadata": [],
    }


def _format_name(archive: SqlArchive) -> str:
    if archive.table_format is not None:
        return str(archive.table_format)
    return _DEFAULT_FORMAT if archive.catalog is None else "iceberg"


def _listed(catalog: Catalog, archive: SqlArchive, healths: Callable[[str], QueryHealth]) -> Entity:
    runs = archive.query_id in catalog.queries
    return {
        "name": archive.name,
        "source": archive.source.name,
        "topic": archive.source.topic,
        "format": _format_name(archive),
        "path": str(archive.location),
        "queryId": archive.query_id,
        "state": healths(archive.query_id).state if runs else "TERMINATED",
    }


def _holds(status: ArchiveStatus | None) -> dict[str, object]:
    """Returns how much the archive holds; nothing before the first batch."""
    if status is None:
        return {"rows": 0, "files": 0, "bytes": 0, "partitions": []}
    return {
        "rows": status.row_count,
        "files": status.file_count,
        "bytes": status.size_bytes,
        "partitions": [
            {
                "partition": partition.partition.partition,
                "position": partition.position,
                "end": partition.end,
                "behind": partition.behind,
            }
            for partition in status.partitions
        ],
    }


def _check_location(archive: SqlArchive) -> None:
    opening.check_location(archive.location, table_format=archive.table_format, catalog=archive.catalog)


def _check_may_be_deleted(archive: SqlArchive) -> None:
    table = opening.find_archive(archive.location, archive.catalog)
    topics = {partition.topic for partition in table.state().positions} if table else set()
    others = sorted(topics - {archive.source.topic})
    if others:
        raise SqlError(
            f"the archive at {archive.location} has records of other topics, too ({', '.join(others)})",
            hint="Write DROP ARCHIVE, and delete the files yourself.",
        )


def _delete(archive: SqlArchive) -> None:
    """Deletes the files of an archive. Idempotent."""
    if opening.format_at(archive.location) is not None:
        archive.location.file_system().delete_dir(archive.location.path)


async def _in_thread(archive: SqlArchive, work: Callable[[], T]) -> T:
    """Runs a call on a thread. SqlError when the store does not answer."""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise SqlError(f"{archive.location} does not answer within {_PATIENCE_S:g} s") from None
    except OSError as error:
        raise SqlError(f"{archive.location}: {error}") from None
