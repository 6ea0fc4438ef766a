"""Which cases run on the server, and the Spark session of the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.spark.programs.planners import session_with_planners

from odradek.spark.engine.session import session_with_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def odradek_spark() -> Iterator[SparkSession]:
    """The session of the fixture that users have, with workers that start warm."""
    with session_with_planners(lambda: session_with_state("tests", None, 1)) as spark:
        yield spark


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-case",
        action="store_true",
        help="run every case of tests/sql/cases on the SQL server, not those of each plan's shape alone",
    )
