"""Every option of every command reads numbers in one way: digits of Java, and one line that says what to write."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from tests.unit.hostile_numbers import NO_REAL, NO_WHOLE

from odradek.cli.main import cli
from odradek.cli.numbers import Real, Whole

Place = tuple[str, click.Parameter]


def _places(command: click.Command, path: str) -> Iterator[Place]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _places(inner, f"{path} {name}")
    for parameter in command.params:
        if "integer" in parameter.type.name or "float" in parameter.type.name:
            yield f"{path} {parameter.opts[0]}", parameter


PLACES = dict(_places(cli, "odradek"))


def test_the_numbers_of_the_command_line_are_found() -> None:
    assert {
        "odradek topic create --partitions",
        "odradek consume --max",
        "odradek txn abort --partition",
    } <= {*PLACES}
    assert len(PLACES) > 25


@pytest.mark.parametrize("place", PLACES)
def test_what_java_does_not_read_is_refused_in_one_line(place: str) -> None:
    parameter = PLACES[place]
    assert isinstance(parameter.type, Whole | Real), "use odradek.cli.numbers"
    context = click.Context(click.Command("command"))
    for text in (*(NO_WHOLE if isinstance(parameter.type, Whole) else NO_REAL), " 5 ", "5\n"):
        with pytest.raises(click.BadParameter) as refused:
            parameter.type.convert(text, parameter, context)
        message = refused.value.format_message()
        assert "\n" not in message
        assert len(message) < 250
        assert parameter.opts[0].lstrip("-") in message.lower()


@pytest.mark.parametrize("place", PLACES)
def test_plain_numbers_are_read(place: str) -> None:
    kind = PLACES[place].type
    assert isinstance(kind, Whole | Real)
    number = max(1, kind.min or 1)
    for text in (str(number), f"+{number}", f"0{number}"):
        assert kind.convert(text, None, None) == number


@pytest.mark.parametrize("bits", [15, 31, 63])
def test_a_number_has_to_fit_into_the_protocol(bits: int) -> None:
    kind = Whole(bits=bits)
    assert kind.convert(str(2**bits - 1), None, None) == 2**bits - 1
    assert kind.convert(str(-(2**bits)), None, None) == -(2**bits)
    for number in (2**bits, -(2**bits) - 1):
        with pytest.raises(click.BadParameter, match=f"too large: at most {2**bits - 1}"):
            kind.convert(str(number), None, None)
