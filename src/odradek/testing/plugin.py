"""The pytest plugin: `def test_it(odradek_broker): ...` gets a real broker, shared by the session.

Found by pytest through the package's entry point. Nothing is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.streams import session as streams_session
    from odradek.testing import local, loop_watchdog
else:
    streams_session = lazy("odradek.streams.session")
    local = lazy("odradek.testing.local")
    loop_watchdog = lazy("odradek.testing.loop_watchdog")


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator[local.LocalBroker]:
    """A broker on a free port; `odradek_broker.address` is what clients call `bootstrap.servers`."""
    with local.LocalBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def odradek_spark() -> Iterator[SparkSession]:
    """A light Spark session for `app.test(spark=odradek_spark)`, for all tests. It needs `odradek[spark]` and Java 17."""
    spark = streams_session.session("tests", None, 1)
    yield spark
    spark.stop()


@pytest.fixture
def odradek_loop_watchdog() -> Iterator[None]:
    """The test fails when a callback of an event loop in this process takes more than 50 ms of CPU time."""
    with loop_watchdog.callbacks_are_short() as results:
        yield
    assert not results, "\n".join(results)
