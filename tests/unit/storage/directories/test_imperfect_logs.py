"""Which open logs lack something is known without a look at all of them."""

from types import SimpleNamespace
from typing import Any

from odradek.model.ids import TopicPartition
from odradek.storage.directories.imperfect_logs import ImperfectLogs


def log(partition: int, **flaws: Any) -> Any:
    perfect = {"damage": None, "lack_note": None, "start_is_doubted": False}
    return SimpleNamespace(topic_partition=TopicPartition("t", partition), **{**perfect, **flaws})


def test_only_logs_with_a_flaw_are_listed_and_only_as_long_as_they_have_one() -> None:
    logs = [
        log(0),
        log(1, damage="cut short"),
        log(2, lack_note=object()),
        log(3, start_is_doubted=True),
        log(4),
    ]
    by_name = {opened.topic_partition: opened for opened in logs}
    imperfect = ImperfectLogs(by_name)
    for opened in logs:
        imperfect.opened(opened)
    assert sorted(name.partition for name, _ in imperfect) == [1, 2, 3]

    logs[1].damage = None
    logs[4].damage = "a batch that is not what was written"
    imperfect.add(logs[4].topic_partition)
    del by_name[logs[2].topic_partition]
    assert sorted(name.partition for name, _ in imperfect) == [3, 4]

    logs[1].damage = "damaged again"
    imperfect.add(logs[1].topic_partition)
    assert sorted(name.partition for name, _ in imperfect) == [1, 3, 4]


def test_a_name_that_is_added_before_its_log_is_open_counts_once_it_is() -> None:
    by_name: dict[TopicPartition, Any] = {}
    imperfect = ImperfectLogs(by_name)
    damaged = log(0, damage="cut short")
    imperfect.add(damaged.topic_partition)
    assert list(imperfect) == []
    by_name[damaged.topic_partition] = damaged
    imperfect.opened(damaged)
    assert list(imperfect) == [(damaged.topic_partition, damaged)]
