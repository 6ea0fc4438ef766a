"""The shop without a broker: `pytest examples/shop`. The first test waits for Spark, the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from examples.shop.shop import shop

from odradek.streams import TestDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60_000


@pytest.fixture
def driver(odradek_spark: SparkSession) -> Iterator[TestDriver]:
    """The shop with two registered users."""
    with shop().test(spark=odradek_spark) as driver:
        people = {"ann": {"name": "Ann", "email": "ann@x"}, "bob": {"name": "Bob", "email": "bob@x"}}
        driver.feed("registrations", people.items())
        yield driver


def order(user: str, item: str, card: str = "c1", amount: float = 1.0) -> dict[str, object]:
    return {"user": user, "item": item, "amount": amount, "card": card}


def test_each_service_gets_every_order(driver: TestDriver) -> None:
    driver.feed("orders", [("o1", order("ann", "tea")), ("o2", order("eve", "cup"))])
    assert [(mail.key, mail.value) for mail in driver.read("emails")] == [
        ("ann@x", "Welcome, Ann!"),
        ("bob@x", "Welcome, Bob!"),
        ("ann@x", "Ann, you ordered: tea"),
    ]
    assert [(kept.key, kept.value["item"], kept.value["name"]) for kept in driver.read("archive")] == [
        ("o1", "tea", "Ann"),
        ("o2", "cup", None),
    ]


def test_sales_are_a_table_that_goes_on_after_a_restart(driver: TestDriver) -> None:
    driver.feed("orders", [("o1", order("ann", "tea", amount=3.5)), ("o2", order("ann", "cup", amount=8))])
    driver.cut()
    driver.feed("orders", [("o3", order("bob", "tea", amount=4))])
    assert driver.table("sales") == {"tea": {"orders": 2, "amount": 7.5}, "cup": {"orders": 1, "amount": 8.0}}


def test_a_card_of_two_users_is_suspect_if_they_order_within_ten_minutes(driver: TestDriver) -> None:
    driver.feed("orders", [("o1", order("ann", "tea"), 0), ("o2", order("bob", "tea"), 11 * MINUTE)])
    assert driver.read("suspects") == []
    driver.feed("orders", [("o3", order("ann", "tea"), 12 * MINUTE)])
    (suspect,) = driver.read("suspects")
    assert (suspect.key, suspect.value) == ("c1", {"orders": 2, "users": 2, "since": 2 * MINUTE})


def test_three_orders_are_fine_and_four_are_not(driver: TestDriver) -> None:
    driver.feed("orders", [(f"o{number}", order("ann", "tea"), number * MINUTE) for number in range(3)])
    assert driver.read("suspects") == []
    driver.feed("orders", [("o4", order("ann", "tea"), 3 * MINUTE)])
    assert {suspect.value["orders"] for suspect in driver.read("suspects")} == {4}
