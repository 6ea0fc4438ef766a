"""Cases of functions, one in a line: `expression ==> TYPE value`, or `expression ==> error: part of the message`.

A value is written as an expression, too. `~` before it: near enough, for doubles. `*` is any value that is not null. A line
that begins with # is a comment; a file is a family.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCase:
    where: str
    expression: str
    expected: str

    @property
    def error(self) -> str | None:
        return self.expected.removeprefix("error:").strip() if self.expected.startswith("error:") else None

    @property
    def type_and_value(self) -> tuple[str, str]:
        """The type is up to the last bracket or word before the value."""
        depth = 0
        for place, letter in enumerate(self.expected):
            depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
            if letter == " " and depth == 0:
                return self.expected[:place], self.expected[place + 1 :].strip()
        raise ValueError(f"{self.where}: {self.expected} needs a type and a value")


def cases() -> Iterator[FunctionCase]:
    for path in sorted(FOLDER.glob("*.cases")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            expression, arrow, expected = line.partition(" ==> ")
            if not arrow:
                raise ValueError(f"{path.name}:{number}: no ==> in {line}")
            yield FunctionCase(
                where=f"{path.stem}:{number}", expression=expression.strip(), expected=expected.strip()
            )
