"""The picture of a program: every operator is in it, boxes do not cover each other, lines lead down."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from odradek.streams import Streams
from odradek.streams.plan.describing import subtopologies
from odradek.streams.plan.layout import layered

SVG = "{http://www.w3.org/2000/svg}"


def shop() -> Streams:
    app = Streams("shop-and-more")
    orders = app.stream("orders", key="STRING", value="item STRING, amount DOUBLE")
    users = app.table("users", key="STRING", value="name STRING")
    orders.join(users, name="named").to("named")
    orders.group_by("item").window("90 minutes").count(name="by-item").to("items")
    app.stream("named", key="STRING", value="name STRING").filter("name <> 'a & b'", name="some").foreach(
        print, name="shown"
    )
    return app


def test_operators_without_a_topic_between_them_belong_together() -> None:
    app = shop()
    groups = [{operator.name for operator in group} for group in subtopologies(app.program.ends)]
    assert groups == [
        {"stream-1", "table-1", "named", "to-1", "by-item", "to-stream-1", "to-2"},
        {"stream-2", "some", "shown"},
    ]


def test_every_operator_is_in_the_picture_with_all_that_it_does(tmp_path: Path) -> None:
    app = shop()
    drawn = app.describe(svg=str(tmp_path / "shop.svg"))
    assert (tmp_path / "shop.svg").read_text() == drawn
    root = ElementTree.fromstring(drawn)
    titles = [title.text or "" for title in root.iter(f"{SVG}title")]
    for group in subtopologies(app.program.ends):
        for operator in group:
            assert any(
                title.startswith(f"{operator.name}: ") and operator.details() in title for title in titles
            )
    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"shop-and-more", "orders", "users", "items", "by-item", "sub-topology 1"} <= texts


@pytest.mark.parametrize("seed", range(20))
def test_boxes_do_not_cover_each_other_and_lines_lead_down(seed: int) -> None:
    choice = random.Random(seed)
    names = [f"n{number}" for number in range(choice.randint(1, 25))]
    widths = {name: float(choice.randint(40, 300)) for name in names}
    edges = [
        (source, target) for source, target in combinations(names, 2) if choice.random() < 3 / len(names)
    ]
    drawing = layered(widths, edges, layer_height=80)
    for first, second in combinations(names, 2):
        (x, y), (other_x, other_y) = drawing.centers[first], drawing.centers[second]
        assert y != other_y or abs(x - other_x) >= (widths[first] + widths[second]) / 2
    for name, (x, y) in drawing.centers.items():
        assert widths[name] / 2 <= x + 1e-6
        assert x + widths[name] / 2 <= drawing.width + 1e-6
        assert 0 < y < drawing.height
    for edge in edges:
        assert drawing.routes[edge][0] == drawing.centers[edge[0]]
        assert drawing.routes[edge][-1] == drawing.centers[edge[1]]
        assert all(upper[1] < lower[1] for upper, lower in pairwise(drawing.routes[edge]))


def test_a_chain_is_a_straight_line() -> None:
    drawing = layered({"a": 50, "b": 200, "c": 80}, [("a", "b"), ("b", "c")], layer_height=10)
    assert {x for x, _ in drawing.centers.values()} == {100}


def test_a_cycle_is_drawn() -> None:
    drawing = layered({"a": 50, "b": 50}, [("a", "b"), ("b", "a")], layer_height=10)
    assert set(drawing.routes) == {("a", "b"), ("b", "a")}
