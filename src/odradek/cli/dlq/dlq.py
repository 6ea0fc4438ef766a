"""`odradek dlq`: list, show, redrive."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import click

from odradek.cli.access import check_reachable, client_arguments, open_admin
from odradek.cli.dlq.listing import LIST_COLUMNS, group_row, letter_json, letter_lines
from odradek.cli.moments import parse_timestamp
from odradek.cli.numbers import Whole
from odradek.cli.options import bootstrap_option, complete_topics, json_option
from odradek.cli.output import (
    confirm,
    print_json,
    print_json_line,
    print_table,
    remark,
    say_in_place,
    say_lines,
    write_raw,
)
from odradek.dead_letters.grouping import RedriveTarget, grouped, holds_dead_letters, redrive_targets
from odradek.dead_letters.letter import DeadLetter
from odradek.dead_letters.redrive import RedriveProgress, redrive
from odradek.dead_letters.selection import PLACE_FORMS, PlaceRange, Selection, parse_place
from odradek.dead_letters.sending_back import Fate, RedriveRequest
from odradek.dead_letters.topic import DeadLetterTopic
from odradek.security.closed_topics import is_internal

Command = TypeVar("Command", bound=Callable[..., object])

_REFUSED_SHOWN_MAX: Final = 10
_FILTERS: Final = (
    click.option(
        "--error",
        "-e",
        "errors",
        metavar="CLASS",
        multiple=True,
        help="Only this error: its full name or its last part, * ?.",
    ),
    click.option("--text", metavar="TEXT", help="Only errors whose message contains this text."),
    click.option(
        "--origin", "-o", "origins", metavar="PLACE", multiple=True, help=f"Only from there: {PLACE_FORMS}."
    ),
    click.option("--group", "-g", "groups", multiple=True, help="Only what this consumer group gave up."),
    click.option("--query", "queries", multiple=True, help="Only what this streaming query gave up."),
    click.option(
        "--since",
        metavar="TIME",
        help="Only letters that were given up at or after this time: 2013-07-04T12:00:00Z, or 2h (ago).",
    ),
    click.option("--until", metavar="TIME", help="Only letters that were given up before this time."),
    click.option(
        "--redrives-below",
        metavar="N",
        type=Whole(min=1),
        help="Only letters that were sent back less often than this.",
    ),
)


def filter_options(command: Command) -> Command:
    """Adds the options that select letters; the command takes them as `**filters`."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


def _selection(filters: dict[str, Any], places: tuple[PlaceRange, ...] = ()) -> Selection:
    now_ms = round(time.time() * 1000)
    since, until = filters["since"], filters["until"]
    return Selection(
        errors=filters["errors"],
        text=filters["text"],
        origins=tuple(parse_place(text) for text in filters["origins"]),
        places=places,
        groups=filters["groups"],
        queries=filters["queries"],
        since_ms=None if since is None else parse_timestamp(since, now_ms=now_ms),
        until_ms=None if until is None else parse_timestamp(until, now_ms=now_ms),
        redrives_below=filters["redrives_below"],
    )


@click.group()
def dlq() -> None:
    """Look at dead letters, and send them back to where they came from."""


@dlq.command("list")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1, shell_complete=complete_topics)
@filter_options
@click.option(
    "--all", "-a", "with_redriven", is_flag=True, help="Also list groups whose letters were all sent back."
)
@bootstrap_option
@json_option
def list_(
    topics: tuple[str, ...], with_redriven: bool, bootstrap: str, as_json: bool, **filters: object
) -> None:
    """Count dead letters by origin and error.

    Without a topic: those whose names have dlq, dlt or dead in them. Letters that were sent back stay in their topic until
    its retention takes them; they are counted apart.
    """
    selection = _selection(filters)
    letter_groups = [
        group
        for name in topics or _dead_letter_topics(bootstrap)
        for group in grouped(_letters(bootstrap, name, selection))
        if with_redriven or group.letter_count
    ]
    if as_json:
        names = [*LIST_COLUMNS[:5], "oldest_ms", "newest_ms"]
        print_json(
            [
                dict(
                    zip(
                        names,
                        (*group_row(letter_group)[:5], letter_group.oldest_ms, letter_group.newest_ms),
                        strict=True,
                    )
                )
                for letter_group in letter_groups
            ]
        )
    elif letter_groups:
        print_table(LIST_COLUMNS, [group_row(letter_group) for letter_group in letter_groups])
    else:
        remark("no dead letters")


@dlq.command()
@click.argument("place", metavar="TOPIC[:PARTITION[:OFFSET]]")
@filter_options
@click.option(
    "--max",
    "-n",
    "count_max",
    type=Whole(min=1),
    default=10,
    show_default=True,
    help="Handle at most this many letters.",
)
@click.option("--all", "-a", "with_redriven", is_flag=True, help="Also show letters that were sent back.")
@click.option("--stacktrace", "-s", is_flag=True, help="Print the stack trace, too.")
@click.option("--raw", is_flag=True, help="Print nothing but the bytes of the first value.")
@bootstrap_option
@json_option
def show(
    place: str,
    count_max: int,
    with_redriven: bool,
    stacktrace: bool,
    raw: bool,
    bootstrap: str,
    as_json: bool,
    **filters: object,
) -> None:
    """Show dead letters: where they come from, what went wrong, and their bytes.

    \b
    odradek dlq show orders.dlq:0:17
    odradek dlq show orders.dlq --error JSONDecodeError --max 3
    odradek dlq show orders.dlq:0:17 --raw | xxd
    """
    where = parse_place(place)
    is_one = where.first is not None and where.first == where.last
    selection = _selection(filters, (where,))
    count = 0
    for letter, is_redriven in _letters(bootstrap, where.topic, selection):
        if is_redriven and not (with_redriven or is_one):
            continue
        count += 1
        if raw:
            write_raw(letter.value or b"")
            return
        if as_json:
            print_json_line(letter_json(letter, is_redriven))
        else:
            lines = letter_lines(letter, is_redriven, with_stacktrace=stacktrace)
            say_lines([*lines, ""])
        if count == count_max:
            return
    if not count:
        remark("no dead letters")


@dlq.command("redrive")
@click.argument("place", metavar="TOPIC[:PARTITION[:OFFSET]]")
@filter_options
@click.option(
    "--to",
    metavar="TOPIC",
    shell_complete=complete_topics,
    help="Send all letters to this topic, not to their origin.",
)
@click.option(
    "--allow-topic",
    "allowed",
    metavar="TOPIC",
    multiple=True,
    shell_complete=complete_topics,
    help="Letters may go there if their headers say so. (Always allowed: topics that the dead-letter topic is named after.)",
)
@click.option("--max", "-n", "count_max", type=Whole(min=1), help="Handle at most this many letters.")
@click.option("--again", is_flag=True, help="Also send letters that were sent back before.")
@click.option("--dry-run", is_flag=True, help="Only show what would be sent, and where to.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. (It asks on a terminal only.)")
@bootstrap_option
@json_option
def redrive_(
    place: str,
    to: str | None,
    allowed: tuple[str, ...],
    count_max: int | None,
    again: bool,
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    as_json: bool,
    **filters: object,
) -> None:
    """Send dead letters back to where they came from, each once.

    A crash in the middle neither loses nor doubles: the same command continues. What a filter leaves out can
    be sent later.

    Who writes a letter chooses the topic in its headers. A letter of orders.billing.dlq goes back to orders; to another topic
    only with --allow-topic, or when you are asked on a terminal and say yes; to an internal topic never.

    \b
    odradek dlq redrive orders.dlq --dry-run
    odradek dlq redrive orders.dlq --error KeyError --origin orders:2:100-200
    odradek dlq redrive orders.dlq:0:17 --to orders-test
    """
    where = parse_place(place)
    request = RedriveRequest(
        selection=_selection(filters, (where,)),
        to=to,
        again=again,
        count_max=count_max,
        allowed_topics=frozenset(allowed),
    )
    if dry_run or (sys.stdin.isatty() and not yes):
        targets = _targets(bootstrap, where.topic, request)
        if dry_run:
            _print_dry_run(targets, as_json)
            return
        request = _confirmed(targets, where.topic, request)
    check_reachable(bootstrap)
    with DeadLetterTopic(bootstrap, where.topic, **client_arguments()) as topic:
        done = redrive(topic, request, None if as_json else _report)
    _print_targets(done.sent_to, as_json)
    if not as_json:
        _remark_on_the_rest(done)
    if done.refused_topics and not done.sent_to:
        raise click.ClickException(_refusal(where.topic, done.refused_topics))


def _targets(bootstrap: str, name: str, request: RedriveRequest) -> list[RedriveTarget]:
    """Returns the topics that letters would go to, and how many each would get."""
    return redrive_targets(_letters(bootstrap, name, request.selection), name, request)


_PROBLEMS: Final[Mapping[Fate | None, str]] = {
    Fate.INTERNAL: "internal: never sent",
    Fate.NOT_ALLOWED: "named by headers alone: --allow-topic",
}


def _print_dry_run(targets: list[RedriveTarget], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"topic": target.topic, "letters": target.letter_count, "refused": target.refusal is not None}
                for target in targets
            ]
        )
    else:
        _print_plan(targets)
    remark("nothing was sent: leave --dry-run out to do it")


def _print_plan(targets: list[RedriveTarget]) -> None:
    if not targets:
        remark("no dead letters to send")
    elif any(target.refusal for target in targets):
        rows = [(target.topic, target.letter_count, _PROBLEMS.get(target.refusal)) for target in targets]
        print_table(("sent to", "letters", "problem"), rows)
    else:
        print_table(("sent to", "letters"), [(target.topic, target.letter_count) for target in targets])


def _confirmed(targets: list[RedriveTarget], name: str, request: RedriveRequest) -> RedriveRequest:
    """Returns the request, with the topics that the user has confirmed."""
    _print_plan(targets)
    going = [target for target in targets if not is_internal(target.topic)]
    count = sum(target.letter_count for target in going)
    confirm(f"Send {count:,} letters of {name} back, to {len(going)} topics?", abort=True)
    return replace(request, allowed_topics=request.allowed_topics | {target.topic for target in going})


def _refusal(name: str, refused: Mapping[str, int]) -> str:
    topics = ", ".join(f"{topic} ({count:,})" for topic, count in list(refused.items())[:_REFUSED_SHOWN_MAX])
    return (
        f"no letter of {name} was sent: their headers name {topics}. Name a topic that you trust (--allow-topic), "
        "or send all to one (--to); internal topics get none"
    )


def _report(progress: RedriveProgress) -> None:
    if sys.stderr.isatty():
        say_in_place(f"{progress.counts[Fate.SENT]:,} sent")


def _remark_on_the_rest(done: RedriveProgress) -> None:
    words = {
        Fate.NOT_MEANT: "left: not meant by the filters",
        Fate.WITHOUT_ORIGIN: "left: their headers do not say where they come from (--to sends them somewhere)",
        Fate.INTERNAL: "left: their headers name internal topics, which get no letters",
        Fate.NOT_ALLOWED: "left: their headers alone name the topic (--allow-topic lets them go there)",
        Fate.COPY: "passed over: copies of a letter that was sent",
    }
    for fate, text in words.items():
        if done.counts[fate]:
            remark(f"{done.counts[fate]:,} {text}")


def _print_targets(targets: Mapping[str, int], as_json: bool) -> None:
    if as_json:
        print_json([{"topic": topic, "letters": count} for topic, count in targets.items()])
    elif targets:
        print_table(("sent to", "letters"), list(targets.items()))
    else:
        remark("no dead letters to send")


def _letters(bootstrap: str, name: str, selection: Selection) -> Iterator[tuple[DeadLetter, bool]]:
    check_reachable(bootstrap)
    with DeadLetterTopic(bootstrap, name, **client_arguments()) as topic:
        yield from topic.letters(selection)


def _dead_letter_topics(bootstrap: str) -> list[str]:
    with open_admin(bootstrap) as admin:
        return [name for name in admin.list_topics() if holds_dead_letters(name)]
