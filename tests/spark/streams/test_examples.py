"""The examples of streams and tables, through the test driver: what they show is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.flights.live_tables import flights
from examples.shop.shop import shop
from examples.shop.test_shop import (  # noqa: F401 - its tests run here, in the session of these tests
    driver,
    test_a_card_of_two_users_is_suspect_if_they_order_within_ten_minutes,
    test_each_service_gets_every_order,
    test_sales_are_a_table_that_goes_on_after_a_restart,
    test_three_orders_are_fine_and_four_are_not,
)
from pyspark.sql import SparkSession

EXAMPLES = Path(__file__).parents[3] / "examples"
DAY = 86_400_000


@pytest.fixture
def odradek_spark(spark: SparkSession) -> SparkSession:
    return spark


def test_the_picture_of_the_shop_is_up_to_date() -> None:
    assert (EXAMPLES / "shop" / "shop.svg").read_text() == shop().describe(svg=True)


def test_the_shop_is_short() -> None:
    assert len((EXAMPLES / "shop" / "shop.py").read_text().splitlines()) < 150


def test_flights_know_their_airport_plane_and_weather(spark: SparkSession) -> None:
    hour = "2013-01-01T10:00:00Z"
    known = {"carrier": "UA", "flight": 7, "tailnum": "N1", "origin": "EWR", "dest": "ORD", "time_hour": hour}
    with flights().test(spark=spark) as t:
        t.feed("airports", [("ORD", {"name": "O'Hare"}, 0)])
        t.feed("planes", [("N1", {"manufacturer": "BOEING", "model": "737"}, 0)])
        t.feed("weather", [("EWR", {"time_hour": hour, "wind_speed": 20.5, "visib": 1.0}, 0)])
        t.feed("flights", [(None, known | {"dep_delay": delay}, 1) for delay in (150.0, -10.0, None)])
        t.feed("flights", [(None, known | {"dep_delay": 10.0}, DAY)])
        (late,) = t.read("delayed")
        assert (late.key, late.value) == (
            "UA7",
            {"dep_delay": 150.0, "to": "O'Hare", "plane": "BOEING 737", "wind_speed": 20.5, "visib": 1.0},
        )
        assert t.table("carriers") == {"UA": {"flights": 3, "mean_delay": 50.0, "longest": 150.0}}
        assert t.table("daily") == {
            ("UA", 0, DAY): {"flights": 2, "mean_delay": 70.0, "longest": 150.0},
            ("UA", DAY, 2 * DAY): {"flights": 1, "mean_delay": 10.0, "longest": 10.0},
        }
