"""The programs of docs/client.md run as they are printed, one after the other."""

import ast
import re
import time
from pathlib import Path

import pytest

from odradek import Admin
from odradek.testing import LocalBroker

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
SECONDS = 30.0
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_every_program_works_as_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) == 12
    scope = {"__name__": "page"}
    with LocalBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        for block in BLOCKS:
            exec(block.replace("127.0.0.1:9092", broker.address), scope)
        printed = capsys.readouterr().out
        assert "JFK-LAX" in printed
        assert "mail about b'LGA-ORD' delivery 1" in printed
        with Admin(broker.address) as admin:
            deadline = time.monotonic() + SECONDS
            while True:  # the end of the worker's block has sent what it accepted; the leader stores it
                done = admin.describe_groups(["mailers"])["mailers"].start_offsets
                if sum(max(offset, 0) for offset in done.values()) == printed.count("mail about"):
                    break
                assert time.monotonic() < deadline, done


def test_the_worker_of_a_queue_has_fifteen_lines() -> None:
    """Imports and the settings of the group are not counted."""
    (block,) = (block for block in BLOCKS if "ShareConsumer(" in block)
    worker = next(
        statement
        for statement in ast.parse(block).body
        if isinstance(statement, ast.With) and "ShareConsumer" in ast.unparse(statement.items[0])
    )
    assert worker.end_lineno is not None
    assert worker.end_lineno - worker.lineno + 1 <= 15
