"""Which tests belong to a changed file."""

from pathlib import PurePosixPath

import pytest
from tools.quick import related_tests, without_nested

EXISTS = frozenset(
    {"tests/unit/storage", "tests/unit/client", "tests/unit/client/producer", "tests/property/storage"}
)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/odradek/storage/log/log.py", ["tests/unit/storage", "tests/property/storage"]),
        ("src/odradek/client/producer/sender.py", ["tests/unit/client/producer"]),
        ("src/odradek/client/network/errors.py", ["tests/unit/client"]),
        ("tests/unit/storage/test_append.py", ["tests/unit/storage/test_append.py"]),
        ("tests/unit/storage/conftest.py", []),
        ("docs/cli.md", []),
        ("src/odradek/unheard/of.py", []),
    ],
)
def test_a_changed_file_brings_the_tests_nearest_to_it(changed: str, tests: list[str]) -> None:
    assert related_tests(PurePosixPath(changed), EXISTS) == tests


def test_a_folder_stands_for_all_that_is_in_it() -> None:
    chosen = [
        "tests/unit/storage/test_append.py",
        "tests/unit/storage",
        "tests/unit/storage",
        "tests/unit/net",
    ]
    assert without_nested(chosen) == ["tests/unit/net", "tests/unit/storage"]
