from __future__ import annotations

from pathlib import Path

import pytest

from odradek.config.broker import BROKER_SETTINGS
from odradek.config.loading import load_broker_config
from odradek.config.sources import Source, collect, from_environment, from_file, from_flags
from odradek.model.errors import ConfigError


def source(name: str, **values: str) -> Source:
    return Source(name=name, values={key.replace("_", "."): text for key, text in values.items()})


def test_flags_win_over_the_environment_and_that_over_the_file() -> None:
    collected = collect(
        source("flag", num_partitions="1"),
        source("environment", num_partitions="2", node_id="2"),
        source("file", num_partitions="3", node_id="3", fetch_max_bytes="3000"),
    )
    assert collected.values == {"num.partitions": "1", "node.id": "2", "fetch.max.bytes": "3000"}
    assert collected.origins == {
        "num.partitions": "flag",
        "node.id": "environment",
        "fetch.max.bytes": "file",
    }


@pytest.mark.parametrize(
    ("strong", "weak"),
    [
        ("log.retention.hours", "log.retention.ms"),
        ("log.retention.minutes", "log.retention.ms"),
        ("log.roll.hours", "log.roll.ms"),
        ("log.roll.jitter.hours", "log.roll.jitter.ms"),
        ("log.dir", "log.dirs"),
        ("broker.id", "node.id"),
    ],
)
def test_a_flag_wins_over_a_file_even_where_kafka_ranks_its_key_lower(strong: str, weak: str) -> None:
    collected = collect(Source(name="flag", values={strong: "5"}), Source(name="file", values={weak: "6"}))
    assert collected.values == {strong: "5"}


def test_within_one_source_kafkas_ranking_holds() -> None:
    collected = collect(source("file", log_retention_ms="5", log_retention_hours="6"))
    config, _ = load_broker_config(collected.values)
    assert config.log.retention_ms == 5


def test_the_schedulers_interval_has_a_meaning_of_its_own() -> None:
    collected = collect(
        source("flag", log_flush_scheduler_interval_ms="1"), source("file", log_flush_interval_ms="2")
    )
    assert len(collected.values) == 2


def test_a_variable_is_the_key_in_capitals_with_underscores() -> None:
    environ = {
        "ODRADEK_LOG_RETENTION_MS": "1",
        "odradek_num_partitions": "2",
        "ODRADEK_ZOOKEEPER_CLIENTCNXNSOCKET": "x",
        "ODRADEK_BOOTSTRAP": "localhost:9092",
        "ODRADEK_TEST_ANYTHING": "1",
        "ODRADEK_COLOUR": "red",
        "PATH": "/bin",
    }
    assert from_environment(environ).values == {
        "log.retention.ms": "1",
        "num.partitions": "2",
        "zookeeper.clientCnxnSocket": "x",
        "colour": "red",
    }


def test_a_variable_of_our_own_setting_says_odradek_once_or_twice() -> None:
    for variable in ("ODRADEK_ZOOKEEPER_PASSWORD", "ODRADEK_ODRADEK_ZOOKEEPER_PASSWORD"):
        assert from_environment({variable: "x"}).values == {"odradek.zookeeper.password": "x"}


def test_every_setting_can_be_given_by_a_variable() -> None:
    environ = {"ODRADEK_" + key.upper().replace(".", "_"): "1" for key in BROKER_SETTINGS}
    assert set(from_environment(environ).values) == set(BROKER_SETTINGS)


def test_a_flag_is_key_equals_value() -> None:
    assert from_flags(["a.b=c=d", "e=", " f =g"]).values == {"a.b": "c=d", "e": "", "f": "g"}
    for flag in ("a.b", "=c", " =c"):
        with pytest.raises(ConfigError, match="expected KEY=VALUE"):
            from_flags([flag])


def test_a_file_is_read_and_its_mistakes_name_it(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("\ufeffnode.id=3\nnode.id=4\n".encode())
    read = from_file(str(path))
    assert read.values == {"node.id": "4"}
    assert read.warnings == (f"{path} sets node.id more than once; the last one counts",)
    path.write_bytes(b"a=\\u00")
    with pytest.raises(ConfigError, match=r"server\.properties, line 1"):
        from_file(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not a properties file"):
        from_file(str(path))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        from_file(str(tmp_path / "missing"))
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        from_file(str(tmp_path))
