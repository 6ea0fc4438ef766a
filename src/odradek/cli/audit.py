"""`odradek audit`: what was done, by whom; tail, search."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import click

from odradek import client
from odradek.cli.access import CLIENT_ID, connection_settings, open_admin
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, json_option
from odradek.cli.output import print_json_line, say
from odradek.client.consumer.same_topics import SameTopics
from odradek.model.errors import OdradekError
from odradek.model.java_numbers import is_digits
from odradek.model.safe_text import safe_json
from odradek.security.audit import AUDIT_TOPIC
from odradek.security.audit_search import AuditDocument, audit_document, fits

Command = TypeVar("Command", bound=Callable[..., object])

_POLL_S: Final = 0.25
_SHOWN: Final = ("kind", "outcome", "principal", "host", "api", "operation")


class NoAuditError(OdradekError):
    """No audit exists to read events from."""


@click.group()
def audit() -> None:
    """Look at what was done: changes, logins, refusals, and data access where a rule keeps it.

    Events come from the topic __odradek_audit, or with --file from a broker's file and those that were put aside from it.
    """


def _source_options(command: Command) -> Command:
    option = click.option("--file", "path", type=click.Path(path_type=Path), help="A broker's audit file.")
    return option(command)


@audit.command()
@click.option(
    "-n", "count", type=Whole(min=1), default=20, show_default=True, help="The number of events to show."
)
@_source_options
@bootstrap_option
@json_option
def tail(count: int, path: Path | None, bootstrap: str, as_json: bool) -> None:
    """Show the newest events."""
    for event in deque(_events(path, bootstrap), maxlen=count):
        _show(event, as_json=as_json)


@audit.command()
@click.option(
    "--principal",
    metavar="PATTERN",
    help="Only of this principal, such as User:alice; * and ? match other letters.",
)
@click.option("--api", metavar="PATTERN", help="Only requests of this API, such as CreateTopics or Delete*.")
@click.option("--resource", metavar="PATTERN", help="Only about this resource, such as TOPIC:orders*.")
@click.option("--kind", metavar="KIND", help="Only this kind: change, login, refusal, access or lost.")
@click.option("--outcome", metavar="OUTCOME", help="Only with this outcome: done, refused, failed or asked.")
@click.option("--host", metavar="PATTERN", help="Only from this address.")
@click.option("--since", metavar="TIME", help="Only since this time: 2026-05-01 or 2026-05-01T12:00 (UTC).")
@_source_options
@bootstrap_option
@json_option
def search(path: Path | None, bootstrap: str, as_json: bool, since: str | None, **wanted: str | None) -> None:
    """Show the events that fit; * and ? match other letters."""
    since_ms = 0 if since is None else _moment(since)
    any_fits = False
    for event in _events(path, bootstrap):
        if event.get("time_ms", 0) >= since_ms and fits(event, wanted):
            _show(event, as_json=as_json)
            any_fits = True
    if not any_fits and not as_json:
        say("No event fits.")


def _moment(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--since {text}: write 2026-05-01 or 2026-05-01T12:00") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _show(event: AuditDocument, *, as_json: bool) -> None:
    if as_json:
        print_json_line(event)
        return
    moment = datetime.fromtimestamp(event.get("time_ms", 0) / 1000, UTC).isoformat(timespec="milliseconds")
    words = [_word(event[key]) for key in _SHOWN if event.get(key)]
    for key in ("resources", "errors"):
        words += map(_word, event.get(key, []))
    if event.get("count"):
        words.append(f"{event['count']} events")
    if event.get("cut"):
        words.append("(cut)")
    say(" ".join([moment, *words, event.get("detail", "")]).rstrip())


def _word(value: object) -> str:
    """Returns a name as one word: with blanks in it, it is in quotation marks, so that it cannot look like several."""
    text = str(value)
    return (
        text
        if text and not any(character.isspace() or character == '"' for character in text)
        else safe_json(text)
    )


def _events(path: Path | None, bootstrap: str) -> Iterator[AuditDocument]:
    """Yields the events from the oldest to the newest."""
    yield from _of_topic(bootstrap) if path is None else of_files(path)


def of_files(path: Path) -> Iterator[AuditDocument]:
    """Yields the events of a file's rotated predecessors, then the file's own. Incomplete lines are left
    out."""
    aside = sorted(
        (file for file in path.parent.glob(f"{path.name}.*") if is_digits(file.suffix[1:])),
        key=lambda file: -int(file.suffix[1:]),
    )
    files = [file for file in (*aside, path) if file.exists()]
    if not files:
        raise NoAuditError(f"there is no file {path}: odradek.audit.file of the broker says where it is")
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if (event := audit_document(line)) is not None:
                    yield event


def _of_topic(bootstrap: str) -> Iterator[AuditDocument]:
    with open_admin(bootstrap) as admin:
        if AUDIT_TOPIC not in admin.list_topics():
            raise NoAuditError(
                f"there is no topic {AUDIT_TOPIC}: set odradek.audit.sinks=topic on the brokers, or read a file with --file"
            )
        topic = admin.describe_topics([AUDIT_TOPIC])[AUDIT_TOPIC]
    events = []
    settings = {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, "auto.offset.reset": "earliest"}
    with client.Consumer.from_config({**settings, **connection_settings()}) as consumer:
        partitions = topic.topic_partitions
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        same = SameTopics(consumer.topic_id, {AUDIT_TOPIC: topic.topic_id})
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            records = consumer.poll(_POLL_S)
            same.check()
            for record in records:
                event = audit_document(record.value or b"")
                if event is not None:
                    events.append(event)
    yield from sorted(events, key=lambda event: event.get("time_ms", 0))
