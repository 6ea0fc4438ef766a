"""The commands of the sandbox, one line each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from odradek.cli.output import say, say_lines
from odradek.cli.sandbox import screen
from odradek.cli.sandbox.playground import Playground
from odradek.cli.sandbox.story import GROUP, TOPIC
from odradek.model.errors import OdradekError
from odradek.model.java_numbers import finite_number, is_digits
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from rich import console
    from rich import live as rich_live
else:
    console = lazy("rich.console")
    rich_live = lazy("rich.live")

HELP: Final = """\
status              brokers, partitions, consumers
watch [SECONDS]     the same, live (10)
produce N           send N records to 'orders'
load [PER_SECOND]   send records all the time (400); 'load stop' ends it and counts
kill N              kill -9 of broker N
pause N             SIGSTOP: broker N lives, but is silent
revive N            start broker N again, or wake it
consumer add        one more consumer in the group 'shop'
consumer remove     one fewer
next                the next lesson
quit                end everything"""
_PARTITIONS: Final = 3
_PICTURES_A_SECOND: Final = 2


class Quit(Exception):
    """Ends the sandbox."""


class NextLesson(Exception):
    """Begins the next lesson."""


class Shell:
    """Carries out commands, and prints their outcome."""

    def __init__(self, playground: Playground) -> None:
        self._playground = playground
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "help": lambda _: say_lines(HELP),
            "status": lambda _: self.show(),
            "watch": self._watch,
            "produce": self._produce,
            "load": self._load,
            "kill": lambda rest: self._broker(rest, "kill"),
            "pause": lambda rest: self._broker(rest, "pause"),
            "revive": lambda rest: self._playground.revive(_number(rest)),
            "consumer": self._consumer,
        }

    def run(self, line: str) -> None:
        """Runs one command. Raises Quit and NextLesson; other errors are printed, and the cluster continues."""
        word, *rest = line.split() or ["next"]
        if word in ("quit", "exit"):
            raise Quit
        if word == "next":
            raise NextLesson
        command = self._commands.get(word)
        if command is None:
            say(f"there is no command {word!r}; these are:")
            say_lines(HELP)
            return
        try:
            command(rest)
        except OdradekError as error:
            say(f"! {error}")

    def show(self) -> None:
        _console().print(screen.picture(self._playground, self._topics()))

    def _topics(self) -> list[str]:
        try:
            return sorted(self._playground.admin.list_topics())
        except OdradekError:
            return [TOPIC]

    def _watch(self, rest: list[str]) -> None:
        seconds = _seconds(rest) if rest else 10.0
        end = time.monotonic() + min(seconds, 3600)
        with rich_live.Live(console=_console(), auto_refresh=False) as live:
            while time.monotonic() < end:
                live.update(screen.picture(self._playground, self._topics()), refresh=True)
                time.sleep(1 / _PICTURES_A_SECOND)

    def _topic(self) -> str:
        self._playground.ensure(TOPIC, _PARTITIONS, min_insync_replicas="2")
        return TOPIC

    def _produce(self, rest: list[str]) -> None:
        placed = self._playground.produce(self._topic(), _number(rest))
        say(f"{len(placed)} acknowledged")

    def _load(self, rest: list[str]) -> None:
        if rest and rest[0] == "stop":
            load = self._playground.stop_load(TOPIC)
            say(f"{load.sent:,} sent, {len(load.acknowledged):,} acknowledged, {load.failed} failed")
            return
        self._playground.start_load(self._topic(), _number(rest) if rest else 400)

    def _broker(self, rest: list[str], action: str) -> None:
        broker = self._playground.broker(_number(rest))
        getattr(broker, action)()

    def _consumer(self, rest: list[str]) -> None:
        if rest == ["add"]:
            say(f"{self._playground.add_consumer(GROUP, self._topic()).name} joins {GROUP}")
        elif rest == ["remove"]:
            say(f"{self._playground.remove_consumer(GROUP).name} has left")
        else:
            say("consumer add, or consumer remove")


def _seconds(rest: list[str]) -> float:
    try:
        return finite_number(rest[0])
    except ValueError:
        raise OdradekError(f"{rest[0]!r:.80} is no number of seconds: write 10 or 2.5") from None


def _number(rest: list[str]) -> int:
    if len(rest) != 1 or not is_digits(rest[0]):
        raise OdradekError("write one number after the command, such as a broker's id")
    return int(rest[0])


def _console() -> console.Console:
    return console.Console(highlight=False)
