"""An API is added in one place: the table in `protocol/api.py`."""

from __future__ import annotations

from pathlib import Path

from odradek.broker import handlers
from odradek.broker.handlers import Handlers
from odradek.protocol import APIS

ROOM = Path(handlers.__file__).parent


def test_each_api_that_is_served_has_a_handler_where_its_row_says_and_no_handler_lacks_a_row() -> None:
    said = {f"{api.family}/{api.snake_name}.py" for api in APIS.values() if api.served}
    there = {str(path.relative_to(ROOM)) for path in ROOM.glob("*/*.py") if path.name != "__init__.py"}
    assert said == there


def test_each_handler_serves_the_api_of_its_row() -> None:
    assert {key: served.api_key for key, served in Handlers().items()} == {
        api.key: api.key for api in APIS.values() if api.served
    }
