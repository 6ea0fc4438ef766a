"""The words of the pages in each language, and how numbers, sizes and times are written in it.

A language is the files of `texts/` that begin with its code: `en.toml`, `en-sql.toml`. Its keys and the fields of its texts
are the same as in English; a test compares them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

LANGUAGES: Final = ("en", "ru")
LANGUAGE_NAMES: Final = {"en": "English", "ru": "Русский"}
_FOLDER: Final = Path(__file__).parent.parent / "texts"
_THIN_SPACE: Final = "\u202f"
_STEP: Final = 1024
_UNITS: Final = {
    "en": ("B", "KiB", "MiB", "GiB", "TiB", "PiB"),
    "ru": ("Б", "КиБ", "МиБ", "ГиБ", "ТиБ", "ПиБ"),
}
_POINTS: Final = {"en": ".", "ru": ","}
_TENTHS_BELOW: Final = 10
_IDS: Final = ("broker", "partition")
UNKNOWN_SIGN: Final = "–"


class CountedText:
    """A number in a text: `{count}` is the number, `{count:record|records}` the word that agrees with it."""

    __slots__ = ("_catalogue", "_count")

    def __init__(self, catalogue: Catalogue, count: int) -> None:
        self._catalogue = catalogue
        self._count = count

    def __format__(self, words: str) -> str:
        if not words:
            return self._catalogue.number(self._count)
        return words.split("|")[_PLURALS[self._catalogue.language](abs(self._count))]


def _english(count: int) -> int:
    return 0 if count == 1 else 1


def _russian(count: int) -> int:
    """Returns which of three words: 1 реплика, 2 реплики, 5 реплик, 11 реплик, 21 реплика."""
    if count % 10 == 1 and count % 100 != 11:
        return 0
    return 1 if count % 10 in (2, 3, 4) and count % 100 not in (12, 13, 14) else 2


_PLURALS: Final[Mapping[str, Callable[[int], int]]] = {"en": _english, "ru": _russian}
PLURAL_FORMS: Final = {"en": 2, "ru": 3}


class Catalogue:
    """The words of one language."""

    def __init__(self, language: str, texts: Mapping[str, str]) -> None:
        self.language: Final = language
        self.texts: Final = texts

    def text(self, key: str, **values: object) -> str:
        """Returns the text with its fields filled in; numbers are written in the language's way. KeyError: no such text."""
        written = {name: self._written(name, value) for name, value in values.items()}
        return self.texts[key].format(**written)

    def _written(self, name: str, value: object) -> object:
        if not isinstance(value, int) or name in _IDS:
            return value
        return self.size(value) if name.endswith("_bytes") else CountedText(self, value)

    def number(self, value: int | None) -> str:
        """Returns a whole number in groups of three; a dash for an unknown one."""
        if value is None or value < 0:
            return UNKNOWN_SIGN
        return f"{value:,}".replace(",", _THIN_SPACE)

    def size(self, value: int | None) -> str:
        """Returns bytes with a unit of 1024; a dash for unknown ones."""
        if value is None or value < 0:
            return UNKNOWN_SIGN
        amount, unit = float(value), 0
        units = _UNITS[self.language]
        while amount >= _STEP and unit < len(units) - 1:
            amount /= _STEP
            unit += 1
        digits = f"{amount:.1f}" if unit and amount < _TENTHS_BELOW else f"{amount:.0f}"
        return f"{digits.replace('.', _POINTS[self.language])}\u00a0{units[unit]}"

    def seconds(self, value: float) -> str:
        """Returns a duration in the largest unit that fits."""
        for key, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
            if value >= 2 * length:
                return self.text(f"time.{key}", count=int(value // length))
        return self.text("time.second", count=max(0, round(value)))


@cache
def catalogue(language: str) -> Catalogue:
    """Returns the catalogue of a language of `LANGUAGES`."""
    texts: dict[str, str] = {}
    for path in (_FOLDER / f"{language}.toml", *sorted(_FOLDER.glob(f"{language}-*.toml"))):
        texts |= _flat(tomllib.loads(path.read_text(encoding="utf-8")))
    return Catalogue(language, texts)


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            pairs += _flat(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", str(value)))
    return pairs


def preferred_language(header: str) -> str:
    """Returns the language that an Accept-Language header likes best of ours; English without one."""
    wanted: list[tuple[float, str]] = []
    for part in header[:1000].split(",")[:20]:
        name, _, weight = part.strip().partition(";q=")
        try:
            wanted.append((-float(weight or 1), name.strip().lower().partition("-")[0]))
        except ValueError:
            continue
    return next((name for _, name in sorted(wanted) if name in LANGUAGES), LANGUAGES[0])
