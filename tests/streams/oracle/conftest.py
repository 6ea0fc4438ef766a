"""The programs here share the Spark of `tests/spark`. Without PySpark or Java they are skipped, and say what is absent."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
from tests.interop.languages.prepare import AbsentError
from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.streams.oracle.kafka import KafkaOracle
from tests.streams.oracle.ours import OurDriver, light_session

from odradek.spark.engine.java import find_java


@pytest.fixture(scope="session")
def ours(request: pytest.FixtureRequest) -> OurDriver:
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("PySpark is absent")
    problem = find_java().problem
    if problem is not None:
        pytest.skip(f"a usable Java is absent: {problem}")
    return OurDriver(light_session(request.getfixturevalue("spark")))


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaOracle]:
    try:
        oracle = KafkaOracle()
    except AbsentError as reason:
        pytest.skip(f"absent: {reason}")
    with oracle:
        yield oracle
