"""`odradek sandbox`: three brokers on this machine, and the story of what a Kafka does, as it does it."""

from __future__ import annotations

import shutil
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from odradek.cli.options import json_option
from odradek.cli.output import print_json
from odradek.cli.sandbox import access
from odradek.cli.sandbox.playground import Playground
from odradek.cli.sandbox.shell import NextLesson, Quit, Shell
from odradek.cli.sandbox.story import LESSONS, Claim, Lesson
from odradek.cli.sandbox.texts import LANGUAGES, title, words
from odradek.model.errors import OdradekError

_LINE_CHARACTERS_MAX: Final = 100
"""Longer lines are hard to read."""


@click.command()
@click.option(
    "--auto", is_flag=True, help="Tell the whole story without asking; exit code 1 if a claim does not hold."
)
@click.option(
    "--lang", type=click.Choice(LANGUAGES), default="en", show_default=True, help="The language of the story."
)
@click.option(
    "--data",
    metavar="DIR",
    help="Keep the brokers' data and logs here; otherwise they are deleted at the end.",
)
@click.option(
    "--secure", is_flag=True, help="With TLS, users, ACLs and an audit, and a lesson about them: access."
)
@click.argument("lessons", nargs=-1, type=click.Choice([*LESSONS, access.LESSON]))
@json_option
@click.pass_context
def sandbox(
    context: click.Context,
    auto: bool,
    lang: str,
    data: str | None,
    secure: bool,
    lessons: tuple[str, ...],
    as_json: bool,
) -> None:
    """Three brokers as processes on this machine, shown live: kill, pause and revive them, add load and consumers.

    Five LESSONS tell what happens and check each claim by counting: partitions, groups, offsets, replication, delivery.
    Everything ends with the command, also by Ctrl-C. With --secure a sixth, access, comes first.
    """
    known = {access.LESSON: access.access, **LESSONS} if secure else LESSONS
    if access.LESSON in lessons and not secure:
        raise click.UsageError("the lesson access needs secure brokers: odradek sandbox --secure access")
    chosen = {name: known[name] for name in lessons or known}
    with tempfile.TemporaryDirectory(prefix="odradek-sandbox-") as temporary:
        teller = _Narrator(lang, quiet=as_json)
        teller.say(words("ui.starting", lang, count=3))
        with Playground(Path(data) if data else Path(temporary), secured=secure) as playground:
            teller.say(words("ui.ready", lang, count=3, address=playground.address))
            if secure:
                admin, visitor = access.Doors(playground).open()
                teller.say(words("ui.secured", lang, admin=admin, visitor=visitor))
            else:
                teller.say(words("ui.console", lang, address=playground.address))
            if auto or as_json:
                for name, lesson in chosen.items():
                    teller.run_lesson(name, lesson, playground)
            else:
                _play(teller, playground, chosen)
    if as_json:
        print_json({"claims": teller.claims, "held": teller.held, "all": len(teller.claims)})
    else:
        teller.say(words("ui.verdict", lang, held=teller.held, all=len(teller.claims)))
    context.exit(0 if teller.held == len(teller.claims) else 1)


class _Narrator:
    """Tells lessons, and keeps what was claimed."""

    def __init__(self, language: str, *, quiet: bool) -> None:
        self.language = language
        self._quiet = quiet
        self.claims: list[dict[str, object]] = []

    @property
    def held(self) -> int:
        return sum(1 for claim in self.claims if claim["holds"])

    def say(self, text: str) -> None:
        if not self._quiet:
            click.echo(_wrapped(text))

    def run_lesson(self, name: str, lesson: Lesson, playground: Playground) -> None:
        """Runs a lesson. One that cannot go on is a claim that does not hold."""
        self.say(f"\n{click.style(title(name, self.language), bold=True)}")
        try:
            for step in lesson(playground):
                text = words(step.key, self.language, **step.values)
                if isinstance(step, Claim):
                    self._claim(step.key, text, holds=step.holds, counted=step.values)
                else:
                    self.say(f"  {text}")
        except OdradekError as error:
            self._claim(f"{name}.stuck", str(error), holds=False, counted={})

    def _claim(self, key: str, text: str, *, holds: bool, counted: Mapping[str, object]) -> None:
        self.claims.append({"claim": key, "holds": holds, "counted": counted, "text": text})
        mark = click.style("✓", fg="green") if holds else click.style("✗", fg="red")
        self.say(f"  {mark} {text}")


def _wrapped(text: str) -> str:
    """Breaks lines between words, at the width of the terminal; continuation lines are indented like the
    first."""
    width = min(shutil.get_terminal_size().columns, _LINE_CHARACTERS_MAX)
    lines = []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        wrapper = textwrap.TextWrapper(
            width=width,
            subsequent_indent=indent,
            break_long_words=False,  # addresses and commands are copied
            break_on_hyphens=False,
        )
        lines += wrapper.wrap(line) or [""]
    return "\n".join(lines)


def _play(teller: _Narrator, playground: Playground, chosen: dict[str, Lesson]) -> None:
    """Lessons one after another; between them the person does what they like."""
    shell = Shell(playground)
    left = list(chosen)
    shell.show()
    lessons = [title(name, teller.language) for name in left]
    teller.say(words("ui.welcome", teller.language, lessons=lessons))
    while True:
        try:
            line = click.prompt(
                words("ui.next" if left else "ui.end", teller.language),
                default="",
                show_default=False,
                prompt_suffix=" ",
            )
            shell.run(line or ("next" if left else "status"))
        except NextLesson:
            if left:
                name = left.pop(0)
                teller.run_lesson(name, chosen[name], playground)
                shell.show()
        except (Quit, click.Abort, EOFError):
            return
