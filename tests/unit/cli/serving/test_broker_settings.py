"""What `serve` makes of its flags."""

from pathlib import Path

import pytest

from odradek.cli.serving.broker_settings import gather
from odradek.model.errors import ConfigError


def joined(directory: Path) -> str:
    return gather(None, (), None, None, str(directory)).values["odradek.registry.dir"]


def test_a_broker_joins_another_by_its_data_directory(tmp_path: Path) -> None:
    (tmp_path / "registry.journal").touch()
    assert joined(tmp_path) == str(tmp_path)


def test_a_broker_joins_several_that_one_command_started(tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "registry.journal").touch()
    assert joined(tmp_path) == str(tmp_path / "registry")


def test_to_join_no_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no broker keeps its registry there"):
        joined(tmp_path / "elsewhere")
