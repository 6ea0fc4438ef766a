"""`odradek archive`: run, status, verify, compact, expire, manifest."""

from __future__ import annotations

import dataclasses
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek.archive.store.location import ArchiveLocation, archive_location
from odradek.archive.store.values import ArchiveError
from odradek.archive.tables.port import TableFormat
from odradek.cli.access import check_reachable, connection_settings
from odradek.cli.metrics import metrics_options, metrics_terms
from odradek.cli.moments import duration_ms
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, complete_topics, json_option, pairs
from odradek.cli.output import bytes_text, print_json, print_table, remark, say
from odradek.config.options import byte_count
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.runtime.real import SystemClock

if TYPE_CHECKING:
    from odradek.archive import opening, row_columns
    from odradek.archive import run as running
    from odradek.archive.checks import status, topic_side, verify
    from odradek.archive.files import compaction, file_lists
    from odradek.spark.engine import java
else:
    compaction = lazy("odradek.archive.files.compaction")
    file_lists = lazy("odradek.archive.files.file_lists")
    java = lazy("odradek.spark.engine.java")
    opening = lazy("odradek.archive.opening")
    row_columns = lazy("odradek.archive.row_columns")
    running = lazy("odradek.archive.run")
    status = lazy("odradek.archive.checks.status")
    topic_side = lazy("odradek.archive.checks.topic_side")
    verify = lazy("odradek.archive.checks.verify")

Command = TypeVar("Command", bound=Callable[..., object])
KEEP_MIN_MS: Final = 3_600_000
_STATUS: Final = ("topic", "partition", "archived to", "end of topic", "behind", "files", "bytes")
_FINDINGS: Final = (
    "topic",
    "partition",
    "from",
    "to",
    "rows",
    "doubled",
    "lost",
    "aborted",
    "control",
    "unknown",
)


def place_options(command: Command) -> Command:
    """Adds the options for the archive's location."""
    for decorate in (
        click.option(
            "--catalog",
            metavar="NAME:NAMESPACE.TABLE",
            help="Iceberg: a table of a catalog that pyiceberg is configured for.",
        ),
        click.option("--region", metavar="REGION", help="The region of an S3-compatible store (AWS_REGION)."),
        click.option(
            "--endpoint", metavar="URL", help="The URL of an S3-compatible store (AWS_ENDPOINT_URL)."
        ),
        click.argument("place", metavar="PLACE"),
    ):
        command = decorate(command)
    return command


client_option: Final = click.option(
    "--property",
    "-X",
    "properties",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any setting of a consumer, by Kafka's name, such as fetch.max.bytes=1048576.",
)


@click.group()
def archive() -> None:
    """Keep topics as tables in files or object storage: Delta Lake, Iceberg, or plain Parquet.

    PLACE is a directory, or s3://bucket/prefix with keys from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
    """


@archive.command()
@place_options
@click.option(
    "--topic",
    "-t",
    "topics",
    multiple=True,
    shell_complete=complete_topics,
    help="A topic to archive; may be repeated.",
)
@click.option(
    "--pattern", metavar="REGEX", help="Archive all topics whose whole name matches this expression."
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice([table_format.value for table_format in TableFormat]),
    help="The format of a new archive.  [default: delta]",
)
@click.option("--once", is_flag=True, help="Archive what is there now, and end.")
@click.option(
    "--every",
    metavar="DURATION",
    default="10m",
    show_default=True,
    help="The longest time that records wait for others, to be in one file.",
)
@click.option(
    "--file-bytes", metavar="SIZE", default="128MiB", show_default=True, help="How large files are to become."
)
@click.option("--writers", type=Whole(min=1), help="The most files that a batch writes.  [default: cores]")
@click.option(
    "--partition-by",
    metavar="COLUMN|NAME=SQL",
    multiple=True,
    help="Partition a new archive, as by topic, or day=date(timestamp).",
)
@click.option(
    "--value",
    type=click.Choice(["raw", "string", "json", "csv"]),
    default="raw",
    show_default=True,
    help="How values are stored.",
)
@click.option(
    "--schema", metavar="DDL", help="The schema of values as json or csv: 'id BIGINT, name STRING'."
)
@click.option(
    "--key",
    type=click.Choice(["raw", "string"]),
    default="raw",
    show_default=True,
    help="How keys are stored.",
)
@click.option("--skip-lost", is_flag=True, help="Skip records that the topic lost before they were archived.")
@click.option("--sink", default="archive", show_default=True, help="The name of this run in commits.")
@click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="The checkpoint of Spark's query; needed with a cluster.  [default: a temporary one]",
)
@client_option
@metrics_options
@bootstrap_option
def run(
    place: str,
    endpoint: str | None,
    region: str | None,
    catalog: str | None,
    topics: tuple[str, ...],
    pattern: str | None,
    table_format: str | None,
    once: bool,
    every: str,
    file_bytes: str,
    writers: int | None,
    partition_by: tuple[str, ...],
    value: str,
    schema: str | None,
    key: str,
    skip_lost: bool,
    sink: str,
    master: str | None,
    checkpoint: str | None,
    properties: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Archive topics, each record once, from where the archive ends. Needs Java 17 and odradek[spark].

    \b
    odradek archive run s3://lake/orders -t orders --partition-by 'day=date(timestamp)'
    odradek archive run /data/clicks -t clicks --value json --schema 'user STRING, url STRING' --once
    """
    if bool(topics) == (pattern is not None):
        raise click.UsageError("give --topic, or --pattern", click.get_current_context())
    _check_java()
    terms = running.RunTerms(
        bootstrap=bootstrap,
        location=_place(place, endpoint, region),
        catalog=catalog,
        topics=topics,
        pattern=pattern,
        table_format=None if table_format is None else TableFormat(table_format),
        columns=row_columns.row_columns(
            value=row_columns.ValueFormat(value),
            value_schema=schema,
            key_as_string=key == "string",
            partition_by=partition_by,
        ),
        sink_id=sink,
        once=once,
        every_ms=duration_ms(every),
        file_bytes=byte_count(file_bytes, "--file-bytes"),
        writers=writers,
        skipping_lost=skip_lost,
        checkpoint=checkpoint,
        master=master,
        client=_client(properties),
        metrics=metrics_terms(),
    )
    check_reachable(bootstrap)
    running.run_archive(terms, remark, _stopped_by_signals().is_set)


def _client(properties: tuple[str, ...]) -> dict[str, str]:
    """Settings of the clients, by Kafka's names: how to log in, and --property over it."""
    return {**connection_settings(), **pairs(properties, "--property")}


def _check_java() -> None:
    problem = java.find_java().problem
    if problem is not None:
        raise ConfigError(problem)


def _stopped_by_signals() -> threading.Event:
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


@archive.command("status")
@place_options
@client_option
@bootstrap_option
@json_option
def status_(
    place: str,
    endpoint: str | None,
    region: str | None,
    catalog: str | None,
    properties: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Show each partition's archived offset, and its lag to the partition's end."""
    table = opening.open_archive(_place(place, endpoint, region), catalog)
    check_reachable(bootstrap)
    summary = status.archive_status(table, topic_side.BrokerTopics(bootstrap, _client(properties)))
    rows = [
        (
            partition.partition.topic,
            partition.partition.partition,
            partition.position,
            partition.end,
            partition.behind,
            partition.file_count,
            partition.size_bytes,
        )
        for partition in summary.partitions
    ]
    if as_json:
        print_json(
            {
                "place": str(table.location),
                "format": table.format,
                "records": summary.row_count,
                "files": summary.file_count,
                "bytes": summary.size_bytes,
                "partitions": [dict(zip(_keys(_STATUS), row, strict=True)) for row in rows],
            }
        )
        return
    if rows:
        print_table(_STATUS, rows)
    remark(
        f"{table.format}: {summary.row_count:,} records in {summary.file_count:,} files, {bytes_text(summary.size_bytes)}"
    )


@archive.command("verify")
@place_options
@client_option
@bootstrap_option
@json_option
def verify_(
    place: str,
    endpoint: str | None,
    region: str | None,
    catalog: str | None,
    properties: tuple[str, ...],
    bootstrap: str,
    as_json: bool,
) -> None:
    """Count the offsets of all rows: is each record of the topic in the archive, once? Exit code 1 if not.

    Offsets without a row are compared with the topic. Not lost are records of aborted transactions, control records, and what
    compaction took before it was archived (`control`). `unknown` are those that the topic does not reach back to any more.
    """
    table = opening.open_archive(_place(place, endpoint, region), catalog)
    check_reachable(bootstrap)
    topics = topic_side.BrokerTopics(bootstrap, _client(properties))
    findings = verify.verify_archive(table, topics)
    rows = [
        (
            finding.partition.topic,
            finding.partition.partition,
            finding.first,
            finding.position,
            finding.row_count,
            finding.doubled,
            len(finding.lost),
            finding.aborted,
            finding.control,
            len(finding.unknown),
        )
        for finding in findings
    ]
    if as_json:
        print_json([dict(zip(_keys(_FINDINGS), row, strict=True)) for row in rows])
    elif rows:
        print_table(_FINDINGS, rows)
    faults = verify.all_faults(findings)
    if faults:
        raise ArchiveError(f"{table.location}: {'; '.join(faults)}")
    if not as_json:
        remark(f"every record is there once: {sum(finding.row_count for finding in findings):,} rows")


@archive.command("compact")
@place_options
@click.option(
    "--file-bytes", metavar="SIZE", default="128MiB", show_default=True, help="How large files are to become."
)
@json_option
def compact_(
    place: str,
    endpoint: str | None,
    region: str | None,
    catalog: str | None,
    file_bytes: str,
    as_json: bool,
) -> None:
    """Put large files in the place of small ones that hold the same rows. A run may go on meanwhile."""
    table = opening.open_archive(_place(place, endpoint, region), catalog)
    done = compaction.compact(table, byte_count(file_bytes, "--file-bytes"))
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    remark(
        f"{done.added_count:,} files ({bytes_text(done.added_bytes)}) in the place of {done.removed_count:,}"
        f" ({bytes_text(done.removed_bytes)}); `odradek archive expire` removes what is no longer needed"
    )


@archive.command("expire")
@place_options
@click.option(
    "--keep",
    metavar="DURATION",
    default="7d",
    show_default=True,
    help="Versions that were the newest so long ago can still be read; files of a batch may be so old before it is committed.",
)
@click.option("--dry-run", is_flag=True, help="Only list the files.")
@json_option
def expire_(
    place: str,
    endpoint: str | None,
    region: str | None,
    catalog: str | None,
    keep: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove files that the archive does not need: replaced by compaction, or left by a crash. No record is
    removed."""
    keep_ms = duration_ms(keep)
    if keep_ms < KEEP_MIN_MS:
        raise ConfigError(
            "--keep is at least 1h: files of a batch that is not committed yet would be removed"
        )
    table = opening.open_archive(_place(place, endpoint, region), catalog)
    expired = table.expire(SystemClock().wall_ms() - keep_ms, dry_run=dry_run)
    if as_json:
        print_json({"files": list(expired.files), "versions": expired.version_count})
        return
    for name in expired.files if dry_run else ():
        say(name)
    verb = "would be" if dry_run else "were"
    remark(f"{len(expired.files):,} files {verb} removed")


@archive.command("manifest")
@place_options
@click.option(
    "--for",
    "style",
    type=click.Choice(["athena", "redshift"]),
    required=True,
    help="athena: symlink manifests, which Trino and Hive read, too.",
)
def manifest_(place: str, endpoint: str | None, region: str | None, catalog: str | None, style: str) -> None:
    """List the files of the archive for an engine that does not read its format. Prints where the list is."""
    table = opening.open_archive(_place(place, endpoint, region), catalog)
    say(f"{table.location.uri}/{file_lists.write_file_list(table, file_lists.ListStyle(style))}")


def _place(place: str, endpoint: str | None, region: str | None) -> ArchiveLocation:
    return archive_location(place, endpoint=endpoint, region=region)


def _keys(columns: tuple[str, ...]) -> list[str]:
    return [column.replace(" ", "_") for column in columns]
