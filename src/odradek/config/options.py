"""Tables of options that a user gives by name: options of Spark's formats and of archives, and SQL's
properties.

A row is a `Setting`. The table refuses names that it does not know, options where they do not apply, and values that are not
of the type. It ignores the case of names, because Spark hands them over in lower case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum
from typing import Any, Final, TypeVar

from odradek.config.definition import Setting, SettingType, by_key
from odradek.model.errors import ConfigError
from odradek.model.near_names import near_name

_Chosen = TypeVar("_Chosen", bound=StrEnum)


def byte_count(text: str, what: str) -> int:
    """Parses a size such as `128MiB`, `1g`, `4096`. ConfigError begins with `what`."""
    size = Setting(key=what, type=SettingType.SIZE, default=None, meaning="").parse(text, what)
    assert isinstance(size, int)
    return size


class OptionTable:
    """The options of one format or statement. `uses`: the words for each operation, such as "a batch read"."""

    def __init__(
        self,
        options: Iterable[Setting],
        uses: Mapping[Any, str],
        *,
        noun: str = "option",
        known_elsewhere: tuple[str, ...] = (),
    ) -> None:
        """`noun`: what an error calls an option. `known_elsewhere`: further names that a misspelt one may
        mean."""
        self.options: Final = tuple(by_key(options).values())
        self._by_key: Final = {option.key.lower(): option for option in self.options}
        self._uses = uses
        self._noun = noun
        self._known_elsewhere = known_elsewhere

    def get(self, name: str) -> Setting | None:
        """Returns the option of this name, written in any case."""
        return self._by_key.get(name.lower())

    def of(self, use: Flag) -> tuple[Setting, ...]:
        """Returns the options that can be given to `use`."""
        return tuple(option for option in self.options if option.use is None or option.use & use)

    def applies(self, name: str, use: Flag) -> bool:
        """Tells whether an option can be given to `use`. Unknown ones are left to `parse`."""
        option = self.get(name)
        return option is None or option.use is None or bool(option.use & use) or option.tolerated

    def parse(self, name: str, text: str, use: Flag) -> Any:
        """Returns the value of an option of this name. Raises ConfigError."""
        option = self.get(name)
        if option is None:
            raise ConfigError(f"unknown {self._noun} {name!r}; {self.hint(name)}")
        if not self.applies(name, use):
            where = "" if option.use is None else f", only to {self.spell(option.use)}"
            raise ConfigError(f"{self._noun} {option.key} does not apply to {self.spell(use)}{where}")
        return option.parse(text, f"{self._noun} {option.key}")

    def given(self, options: Mapping[str, str], use: Flag) -> GivenOptions:
        """Checks the options of one operation. Raises ConfigError."""
        return GivenOptions(
            table=self, values={name.lower(): self.parse(name, text, use) for name, text in options.items()}
        )

    def spell(self, use: Flag) -> str:
        return " or ".join(words for flag, words in self._uses.items() if flag & use)

    def hint(self, name: str) -> str:
        """Returns what to write in place of an unknown name: the one that is like it, or all names."""
        names = [option.key for option in self.options]
        near = near_name(name, (*self._known_elsewhere, *names))
        return f"did you mean {near}?" if near else f"known are {', '.join(names)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """The checked options of one operation. An option that is not given has its default."""

    table: OptionTable
    values: Mapping[str, object]
    """The values by name, in lower case."""

    def is_given(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str) -> str | None:
        value = self._value(name)
        assert value is None or isinstance(value, str), name
        return value

    def flag(self, name: str, *, otherwise: bool = False) -> bool:
        """Returns a BOOLEAN; `otherwise` where it is neither given nor has a default."""
        value = self._value(name)
        assert value is None or isinstance(value, bool), name
        return otherwise if value is None else value

    def number(self, name: str) -> int:
        """Returns a number that has a default."""
        value = self.number_or_none(name)
        assert value is not None, name
        return value

    def number_or_none(self, name: str) -> int | None:
        value = self._value(name)
        assert value is None or isinstance(value, int), name
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Returns a LIST that has a default."""
        value = self._value(name)
        assert isinstance(value, tuple), name
        return value

    def choice(self, name: str, kind: type[_Chosen]) -> _Chosen:
        value = self._value(name)
        assert isinstance(value, kind), name
        return value

    def choice_or_none(self, name: str, kind: type[_Chosen]) -> _Chosen | None:
        return None if self._value(name) is None else self.choice(name, kind)

    def _value(self, name: str) -> object:
        option = self.table.get(name)
        assert option is not None, f"{name} is not declared"
        return self.values.get(name.lower(), option.default)
