"""The programs of docs/client.md run as they are printed, one after the other."""

import re
from pathlib import Path

import pytest

from odradek.testing import LocalBroker

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_program_works_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 12
    scope = {"__name__": "page"}
    with LocalBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        for block in BLOCKS:
            exec(block.replace("127.0.0.1:9092", broker.address), scope)
    assert "JFK-LAX" in capsys.readouterr().out
