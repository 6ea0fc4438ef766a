"""Writes the tables of options in docs/ from the code: `python -m tools.option_pages`.

A page has a table between the lines `<!-- options: NAME, written by make docs -->` and `<!-- end of options -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from odradek.archive.options import ARCHIVE_OPTIONS, ArchiveUse
from odradek.client.settings.security_settings import SecuritySettings
from odradek.client.settings.settings import (
    AdminSettings,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from odradek.config.definition import Setting
from odradek.spark.options.option_table import OPTIONS, Use
from odradek.sql.language.with_properties import ARCHIVE_WITH, WITH
from odradek.sql.server.properties import PROPERTIES, SERVER_SETTINGS, PropertyUse

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
_BLOCK: Final = re.compile(
    r"(?P<head><!-- options: (?P<name>[a-z -]+), written by make docs -->\n).*?(?P<end><!-- end of options -->\n)",
    re.DOTALL,
)


def tables() -> dict[str, str]:
    """Returns every table by the name that pages call it."""
    own = SecuritySettings.settings | ClientSettings.settings
    return {
        "spark reads": _table(OPTIONS.of(Use.READ)),
        "spark writes": _table(OPTIONS.of(Use.WRITE)),
        "archive": _table(ARCHIVE_OPTIONS.options, {ArchiveUse.READ: "read", ArchiveUse.WRITE: "write"}),
        "sql topics": _table(WITH.options),
        "sql archives": _table(ARCHIVE_WITH.options),
        "sql properties": _table(option for option in PROPERTIES.of(PropertyUse.SET) if option.effective),
        "sql server": _table(SERVER_SETTINGS.options),
        "security": _table(SecuritySettings.settings.values()),
        "client": _table(_without(ClientSettings, SecuritySettings.settings)),
        "producer": _table(_without(ProducerSettings, own)),
        "consumer": _table(_without(ConsumerSettings, own)),
        "share consumer": _table(_without(ShareConsumerSettings, own)),
        "admin": _table(_without(AdminSettings, own)),
    }


def written(page: str, known: Mapping[str, str]) -> str:
    """Returns a page with its tables as the code has them now. KeyError for a table that there is not."""
    return _BLOCK.sub(lambda block: f"{block['head']}{known[block['name']]}{block['end']}", page)


def names_in(page: str) -> list[str]:
    """Returns the names of the tables that a page has."""
    return [block["name"] for block in _BLOCK.finditer(page)]


def _without(section: type[ClientSettings], others: Mapping[str, Setting]) -> list[Setting]:
    return [setting for name, setting in section.settings.items() if name not in others]


def _table(options: Iterable[Setting], uses: Mapping[ArchiveUse, str] | None = None) -> str:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for option in options:
        place = (uses or {}).get(option.use) if isinstance(option.use, ArchiveUse) else None
        meaning = f"{place}: {option.meaning}" if place else option.meaning
        cell = meaning.replace("|", "\\|")
        rows.append(f"| `{option.key}` | {_default(option)} | {cell} |")
    return "\n".join([*rows, ""])


def _default(option: Setting) -> str:
    if option.default_words:
        return option.default_words
    return f"`{option.default_text}`" if option.default not in (None, "", ()) else ""


def main() -> None:
    known = tables()
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        current = written(page, known)
        if current != page:
            path.write_text(current, encoding="utf-8")
            sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
