"""The scenarios in scenarios/*.txt hold; with ODRADEK_REWRITE=1 they are written again, as it really happens."""

import os
from pathlib import Path

import pytest
from tests.unit.groups.consumer_script import ConsumerScript
from tests.unit.groups.group_script import parse, rewritten

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_goes_as_the_scenario_says(path: Path) -> None:
    if os.environ.get("ODRADEK_REWRITE"):
        path.write_text(rewritten(path.read_text(), ConsumerScript()))
    script = ConsumerScript()
    for block in parse(path.read_text()):
        if block.commands:
            assert script.run(block.commands) == list(block.expected), "\n".join(block.commands)
