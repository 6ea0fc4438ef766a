"""The pytest plugin: `def test_it(odradek_broker): ...` gets a real broker, shared by the session.

Found by pytest through the package's entry point. Nothing is imported before a test asks for the fixture.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pytest

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek import client
    from odradek.spark.engine import session as spark_sessions
    from odradek.testing import local, loop_watchdog
else:
    client = lazy("odradek.client")
    spark_sessions = lazy("odradek.spark.engine.session")
    local = lazy("odradek.testing.local")
    loop_watchdog = lazy("odradek.testing.loop_watchdog")


_numbers: Final = itertools.count(1)


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator[local.LocalBroker]:
    """A broker on a free port; `odradek_broker.address` is what clients call `bootstrap.servers`."""
    with local.LocalBroker() as broker:
        yield broker


@pytest.fixture
def odradek_new_topic(
    odradek_broker: local.LocalBroker, request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    """Makes topics for one test, each with a name of its own: `odradek_new_topic(partitions=3, cleanup_policy="compact")`.

    The broker is shared by the session; the topics go when the test ends.
    """
    names: list[str] = []
    with client.Admin(odradek_broker.address) as admin:

        def make(partitions: int = 1, **configs: str) -> str:
            test = "".join(
                character if character.isalnum() else "-" for character in request.node.name[:80].lower()
            )
            name = f"{test.encode('ascii', 'replace').decode().replace('?', '-')}-{next(_numbers)}"
            settings = {key.replace("_", "."): value for key, value in configs.items()}
            admin.create_topics([client.NewTopic(name, partitions, 1, configs=settings)])
            names.append(name)
            return name

        yield make
        if names:
            admin.delete_topics(names)


@pytest.fixture
def odradek_topic(odradek_new_topic: Callable[..., str]) -> str:
    """The name of a new topic with one partition, for this test alone."""
    return odradek_new_topic()


@pytest.fixture(scope="session")
def odradek_spark() -> Iterator[SparkSession]:
    """A light Spark session for `app.test(spark=odradek_spark)`, for all tests. It needs `odradek[spark]` and Java 17."""
    spark = spark_sessions.session_with_state("tests", None, 1)
    yield spark
    spark.stop()


@pytest.fixture
def odradek_loop_watchdog() -> Iterator[None]:
    """Fails the test when a callback of an event loop in this process takes more than 50 ms of CPU time."""
    with loop_watchdog.callbacks_are_short() as results:
        yield
    assert not results, "\n".join(results)
