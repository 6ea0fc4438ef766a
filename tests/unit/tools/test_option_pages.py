"""The tables of options in docs/ are those of the code, and every option is in one."""

from __future__ import annotations

import pytest
from tools.option_pages import DOCS, names_in, tables, written

from odradek.archive.options import ARCHIVE_OPTIONS
from odradek.client.settings.settings import (
    AdminSettings,
    ConsumerSettings,
    ProducerSettings,
    ShareConsumerSettings,
)
from odradek.config.definition import Setting
from odradek.config.options import OptionTable
from odradek.spark.options.option_table import OPTIONS
from odradek.sql.language.with_properties import ARCHIVE_WITH, WITH
from odradek.sql.server.properties import PROPERTIES, SERVER_SETTINGS, PropertyUse

PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))}
TABLES = {
    "spark.md": OPTIONS.options,
    "archive.md": ARCHIVE_OPTIONS.options,
    "sql.md": (
        *WITH.options,
        *ARCHIVE_WITH.options,
        *SERVER_SETTINGS.options,
        *(option for option in PROPERTIES.of(PropertyUse.SET) if option.effective),
    ),
    "client-settings.md": (
        *ProducerSettings.settings.values(),
        *ConsumerSettings.settings.values(),
        *ShareConsumerSettings.settings.values(),
        *AdminSettings.settings.values(),
    ),
}
OPTION_TABLES = {
    "spark": OPTIONS,
    "archive": ARCHIVE_OPTIONS,
    "WITH": WITH,
    "WITH of archives": ARCHIVE_WITH,
    "SET": PROPERTIES,
    "sql serve": SERVER_SETTINGS,
}


def test_the_pages_have_the_tables_of_the_code() -> None:
    known = tables()
    stale = [name for name, page in PAGES.items() if written(page, known) != page]
    assert stale == [], "run: make docs"


def test_each_table_is_in_one_page() -> None:
    assert sorted(name for page in PAGES.values() for name in names_in(page)) == sorted(tables())


@pytest.mark.parametrize("page", TABLES)
def test_a_page_names_every_option(page: str) -> None:
    missing = [option.key for option in TABLES[page] if f"\n| `{option.key}` |" not in PAGES[page]]
    assert missing == []


@pytest.mark.parametrize("name", OPTION_TABLES)
def test_a_default_is_a_value_of_its_option(name: str) -> None:
    for option in OPTION_TABLES[name].options:
        if option.default not in (None, ""):
            assert _reads_back(option), option.key


def _reads_back(option: Setting) -> bool:
    text = option.default_text
    return text is not None and option.parse(text) == option.default


@pytest.mark.parametrize("name", OPTION_TABLES)
def test_every_option_says_what_it_means(name: str) -> None:
    assert [option.key for option in OPTION_TABLES[name].options if not option.meaning.strip()] == []


@pytest.mark.parametrize("name", OPTION_TABLES)
def test_a_misspelt_name_is_answered_with_the_one_that_is_meant(name: str) -> None:
    table: OptionTable = OPTION_TABLES[name]
    for option in table.options:
        wrong = f"{option.key[:-1]}{option.key[-1] * 3}"
        assert f"did you mean {option.key}?" in table.hint(wrong)
