from __future__ import annotations

import os

from odradek.config.data_directory import default_data_directory

HOME = os.path.expanduser("~")


def test_data_goes_where_the_user_keeps_data() -> None:
    assert default_data_directory({}) == f"{HOME}/.local/share/odradek"
    assert default_data_directory({"XDG_DATA_HOME": "/data"}) == "/data/odradek"


def test_a_relative_data_home_is_ignored() -> None:
    assert default_data_directory({"XDG_DATA_HOME": "data"}) == f"{HOME}/.local/share/odradek"
