from __future__ import annotations

from pathlib import Path

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.document import document
from odradek.config.topic import TOPIC_SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == document(), "run: python -m odradek.config.document > docs/configuration.md"


def test_the_page_names_every_setting() -> None:
    page = document()
    settings = [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
    assert [
        setting.key for setting in settings if not setting.internal and f"`{setting.key}`" not in page
    ] == []


def test_every_setting_says_what_it_means_in_a_sentence() -> None:
    for setting in (*TOPIC_SETTINGS.values(), *BROKER_SETTINGS.values()):
        assert setting.meaning, setting.key
        assert not setting.effective or setting.meaning.endswith("."), setting.key
