"""Which cases run on the server."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case",
        action="store_true",
        help="run every case of tests/sql/cases on the SQL server, not those of each plan's shape alone",
    )
