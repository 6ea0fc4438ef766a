"""The programs of docs/dataframes.md run as they are printed, one after the other, beside a registry with its schema."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.schema_registry import HeldSchemas, schema_registry

from odradek.testing import LocalBroker

PAGE = (Path(__file__).parents[3] / "docs" / "dataframes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
(SCHEMA,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture
def registry() -> Iterator[str]:
    """The address of a registry that has the page's schema."""
    held = HeldSchemas()
    held.register("flights-value", SCHEMA)
    with schema_registry(held) as url:
        yield url.removeprefix("http://")


def test_every_program_works_as_printed(registry: str) -> None:
    assert len(BLOCKS) == 6
    scope: dict[str, Any] = {"__name__": "page"}
    with LocalBroker({"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}) as broker:
        for block in BLOCKS:
            here = block.replace("127.0.0.1:9092", broker.address).replace("127.0.0.1:8081", registry)
            exec(here, scope)
    keys = [b"JFK", b"LAX", b"JFK"] * 2  # sent once by each client
    values = [b"delayed", b"on time", None] * 2
    assert scope["boards"]["key"].to_list()[:3] == keys[:3]
    assert scope["in_pandas"]["value"].notna().tolist()[:3] == [True, True, False]
    assert (scope["by_hand"]["key"].to_list(), scope["by_hand"]["value"].to_list()) == (keys, values)
    assert scope["late"]["value"].to_list() == [
        {"carrier": "UA", "delay_min": 20},
        {"carrier": "DL", "delay_min": None},
    ]
    assert scope["late"]["key"].to_list() == [b"UA1", b"DL2"]
