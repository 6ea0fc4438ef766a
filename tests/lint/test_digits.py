"""The rule that text becomes a number in one way finds the others, and leaves numbers alone."""

from __future__ import annotations

import pytest
from tests.lint.digits import check

OTHER = [
    "P = re.compile(r'\\d+')",
    "P = re.compile(rf'{name}-\\d')",
    "text.isdigit()",
    "partition(text)[2].isdecimal()",
    "text.isnumeric()",
    "try:\n    n = int(text)\nexcept ValueError:\n    n = 0",
    "try:\n    return_(float(text.strip()))\nexcept (TypeError, ValueError) as error:\n    pass",
    "try:\n    n = Decimal(text)\nexcept InvalidOperation:\n    pass",
    "text.isdigit()  # digits:",
    "@click.option('--n', type=int)\ndef f(): ...",
    "@click.argument('n', type=click.IntRange(min=1))\ndef f(): ...",
    "click.option('-s', type=click.FLOAT)",
]


@pytest.mark.parametrize("source", OTHER)
def test_another_way_is_found(source: str) -> None:
    assert len(check(source)) == 1


FINE = [
    "P = re.compile('[0-9]+')",
    "P = re.compile(rb'\\d+')",
    "is_digits(text)",
    "try:\n    n = whole_number(text)\nexcept ValueError:\n    n = 0",
    "try:\n    n = int(ratio * 2)\nexcept ValueError:\n    n = 0",
    "n = int(2.5)",
    "def f():\n    'Reads \\\\d.'",
    "text.isdigit()  # digits: bytes",
    "click.option('-n', type=Whole(min=1))",
    "parser.add_argument('--pipe', type=int)",
]


@pytest.mark.parametrize("source", FINE)
def test_the_one_way_is_left_alone(source: str) -> None:
    assert check(source) == []
