"""The README's programs run as they are printed."""

import re
from pathlib import Path

import pytest

from odradek.testing import LocalBroker

README = Path(__file__).parents[3] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def program(marker: str) -> str:
    [block] = [block for block in BLOCKS if marker in block]
    return str(block)


@pytest.mark.interop
@pytest.mark.parametrize("marker", ["from odradek import Consumer", "from confluent_kafka import"])
def test_a_program_of_the_readme_produces_and_consumes(
    marker: str, odradek_broker: LocalBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(program(marker).replace("127.0.0.1:9092", odradek_broker.address), {"__name__": "readme"})
    assert "hello" in capsys.readouterr().out


def test_the_broker_of_the_readmes_test_is_a_real_one() -> None:
    addresses: list[str] = []
    scope = {"run_my_application": lambda bootstrap_servers: addresses.append(bootstrap_servers)}
    exec(program("def test_my_application"), scope)
    scope["test_my_application"]()  # type: ignore[call-arg]
    assert addresses[0].startswith("127.0.0.1:")


def test_every_program_of_the_readme_is_run_somewhere() -> None:
    markers = [
        "from odradek import Consumer",
        "from confluent_kafka import",
        "from pyspark.sql import SparkSession",
        "from odradek.streams import Streams",
        "def test_my_application",
    ]
    assert len(BLOCKS) == len(markers)
    assert all(program(marker) for marker in markers)
