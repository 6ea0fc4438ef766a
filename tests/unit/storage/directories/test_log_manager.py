"""Data directories: whose they are, which logs they hold, and how they open, move and close."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.config.topic import LogConfig
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.model.ids import TopicPartition
from odradek.storage.directories.log_manager import LogManager, MissingLogAction
from odradek.storage.files.damage import LostRecordsError
from odradek.testing.sim import FailOperations

Lab = Any
FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7, version=4)
OTHER_ID = UUID(int=8, version=4)
CONFIG = LogConfig()


async def open_flights(directories: Any, topic_id: UUID = TOPIC_ID) -> Any:
    return await directories.open_log(FLIGHTS, topic_id, CONFIG)


async def shut(directories: Any) -> None:
    await directories.close_logs()
    directories.close()


def test_two_brokers_cannot_use_one_directory(lab: Lab) -> None:
    directories = lab.directories()
    with pytest.raises(ConfigError, match="in use by another broker"):
        lab.directories()
    directories.close()
    lab.directories().close()


def test_a_new_directory_gets_an_identity_and_keeps_it(lab: Lab) -> None:
    directories = lab.directories("/data/a", "/data/b", new_cluster_id=lambda: "MyCluster")
    assert directories.cluster_id == "MyCluster"
    directories.close()
    first, second = (lab.disk.read(f"/data/{name}/meta.properties") for name in "ab")
    assert first.startswith(b"version=1\ncluster.id=MyCluster\nnode.id=1\ndirectory.id=")
    assert first != second
    again = lab.directories("/data/a", "/data/b")
    assert again.cluster_id == "MyCluster"
    assert lab.disk.read("/data/a/meta.properties") == first


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"node_id": 2}, "belongs to broker 1, this is broker 2"),
        ({"cluster_id": "Other"}, "belongs to cluster Mine, not to Other"),
    ],
)
def test_a_directory_of_another_broker_or_cluster_is_refused(
    lab: Lab, more: dict[str, Any], sentence: str
) -> None:
    lab.directories(cluster_id="Mine").close()
    with pytest.raises(ConfigError, match=sentence):
        lab.directories(**more)
    lab.directories().close()


def test_directories_of_different_clusters_are_refused(lab: Lab) -> None:
    lab.directories("/data/a", cluster_id="A").close()
    lab.directories("/data/b", cluster_id="B").close()
    with pytest.raises(ConfigError, match="different clusters"):
        lab.directories("/data/a", "/data/b")


@pytest.mark.parametrize("content", [b"", b"version=1\n", b"cluster.id=A\nnode.id=x\n", b"\xff\xfe"])
def test_a_damaged_identity_is_refused(lab: Lab, content: bytes) -> None:
    lab.write("meta.properties", content, directory="/data")
    with pytest.raises(ConfigError, match=r"meta\.properties"):
        lab.directories()


def test_kafkas_own_identity_file_is_understood(lab: Lab) -> None:
    lab.write("meta.properties", b"#\n#Thu Jan 01\ncluster.id=K\nversion=1\nnode.id=1\n", directory="/data")
    assert lab.directories().cluster_id == "K"


def test_the_first_directory_has_an_id_that_stays(lab: Lab) -> None:
    directories = lab.directories("/data/a", "/data/b")
    results = directories.directory_id
    assert len(results) == 22
    directories.close()
    directories = lab.directories("/data/a")
    assert directories.directory_id == results
    directories.close()


def test_an_identity_without_an_id_of_its_own_gets_one(lab: Lab) -> None:
    lab.write("meta.properties", b"version=0\ncluster.id=K\nbroker.id=1\n", directory="/data")
    directories = lab.directories()
    directory_id = directories.directory_id
    directories.close()
    assert f"directory.id={directory_id}".encode() in lab.disk.read("/data/meta.properties")


def test_a_new_directory_takes_the_cluster_that_it_joins_and_one_with_data_does_not(lab: Lab) -> None:
    lab.directories("/data/a", cluster_id="Joined").close()
    assert lab.directories("/data/a").cluster_id == "Joined"
    lab.disk.make_directory("/data/b/flights-0")
    with pytest.raises(ConfigError, match="cannot join cluster Joined; use an empty directory"):
        lab.directories("/data/b", cluster_id="Joined")
    lab.directories("/data/b").close()


async def test_a_replica_that_moved_away_and_back_begins_with_nothing(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 20)
    lab.flush(log)
    log.delete_records(5)
    await directories.write_checkpoints({FLIGHTS: 20})
    await directories.delete_log(FLIGHTS)
    assert directories.checkpointed_high_watermark(FLIGHTS) is None
    log = await open_flights(directories)
    assert (log.start_offset, log.end_offset) == (0, 0)
    lab.cut_power()
    directories = lab.directories()
    log = await open_flights(directories)
    assert (log.end_offset, directories.damaged) == (0, {})


async def test_logs_survive_a_clean_stop_without_being_scanned(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 20)
    await shut(directories)
    assert lab.disk.exists("/data/.kafka_cleanshutdown")
    lab.cut_power()
    directories = lab.directories()
    assert not lab.disk.exists("/data/.kafka_cleanshutdown")
    assert directories.all()[0].was_clean
    log = await open_flights(directories)
    assert len(lab.values(log)) == 20
    assert log.topic_id == TOPIC_ID


async def test_a_crash_while_opening_is_not_taken_for_a_clean_stop(lab: Lab) -> None:
    directories = lab.directories()
    await open_flights(directories)
    await shut(directories)
    lab.directories()
    lab.cut_power()
    assert not lab.directories().all()[0].was_clean


async def test_a_start_that_opens_nothing_leaves_an_unclean_directory_unclean(lab: Lab) -> None:
    directories = lab.directories()
    lab.fill(await open_flights(directories), 5)
    lab.kill()
    lab.directories().close()
    again = lab.directories()
    assert not again.all()[0].was_clean
    assert (await open_flights(again)).end_offset == 5
    await shut(again)
    lab.directories().close()
    assert lab.directories().all()[0].was_clean


async def test_recovery_starts_at_the_checkpoint(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 20)
    lab.flush(log)
    log.delete_records(5)
    await directories.write_checkpoints()
    assert lab.disk.read("/data/recovery-point-offset-checkpoint") == b"0\n1\nflights 0 20\n"
    assert lab.disk.read("/data/log-start-offset-checkpoint") == b"0\n1\nflights 0 5\n"
    assert lab.disk.read("/data/replication-offset-checkpoint") == b"0\n1\nflights 0 20\n"
    lab.cut_power()
    log = await open_flights(lab.directories())
    assert (log.start_offset, log.end_offset) == (5, 20)


async def test_a_start_offset_that_is_not_durable_yet_is_not_written_down(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 5)
    lab.flush(log)
    lab.fill(log, 5)
    log.delete_records(10)
    await directories.write_checkpoints()
    assert lab.disk.read("/data/log-start-offset-checkpoint") == b"0\n1\nflights 0 5\n"


async def test_new_logs_go_where_the_fewest_are(lab: Lab) -> None:
    directories = lab.directories("/data/a", "/data/b", "/data/c")
    for partition in range(7):
        await directories.open_log(TopicPartition("t", partition), TOPIC_ID, CONFIG)
    placement = [directories.log_directory_of(TopicPartition("t", partition)) for partition in range(7)]
    assert sorted(placement.count(f"/data/{name}") for name in "abc") == [2, 2, 3]


async def test_a_deleted_topic_never_comes_back_under_its_name(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 30)
    lab.flush(log)
    log.delete_records(20)
    await directories.write_checkpoints()
    await directories.delete_log(FLIGHTS)
    (retired,) = [name for name in lab.names("/data") if name.endswith("-delete")]
    log = await open_flights(directories, OTHER_ID)
    assert (log.start_offset, log.end_offset, log.topic_id) == (0, 0, OTHER_ID)
    lab.append(log, b"new")
    lab.flush(log)
    lab.cut_power()
    directories = lab.directories()
    log = await open_flights(directories, OTHER_ID)
    assert lab.values(log) == [b"new"]
    await directories.remove_deleted()
    assert retired not in lab.names("/data")


async def test_another_topics_log_under_the_same_name_is_set_aside(lab: Lab) -> None:
    directories = lab.directories()
    lab.fill(await open_flights(directories), 30)
    await shut(directories)
    directories = lab.directories()
    log = await open_flights(directories, OTHER_ID)
    assert log.end_offset == 0
    (stray,) = [name for name in lab.names("/data") if name.endswith("-stray")]
    assert "00000000000000000000.log" in lab.names(f"/data/{stray}")


async def test_a_topic_created_again_and_again_through_crashes_is_never_refused(lab: Lab) -> None:
    for round_number in range(6):
        directories = lab.directories()
        topic_id = UUID(int=100 + round_number, version=4)
        log = await open_flights(directories, topic_id)
        assert log.end_offset == 0
        lab.fill(log, 10 - round_number)
        lab.flush(log)
        if round_number % 2:
            await directories.write_checkpoints()
            await directories.delete_log(FLIGHTS)
        (lab.cut_power if round_number % 3 else lab.kill)()


async def test_a_checkpoint_that_a_killed_broker_replaced_does_not_come_back(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 9)
    lab.flush(log)
    await directories.write_checkpoints()
    await directories.delete_log(FLIGHTS)
    real, lab.disk.sync_directory = lab.disk.sync_directory, lambda path: None
    log = await open_flights(directories, OTHER_ID)  # its checkpoints are renamed, and never synced
    lab.disk.sync_directory = real
    lab.kill()
    directories = lab.directories()
    log = await open_flights(directories, OTHER_ID)
    lab.append(log, b"kept")
    lab.flush(log)
    lab.cut_power()
    assert lab.values(await open_flights(lab.directories(), OTHER_ID)) == [b"kept"]


async def set_strays_aside(
    directories: LogManager, known: list[TopicPartition], is_placed_here: Callable[[UUID, int], bool]
) -> None:
    for name in directories.strays(known):
        await directories.set_stray_aside(name, is_placed_here)


async def test_strays_are_set_aside_once_and_nothing_of_them_is_deleted(lab: Lab) -> None:
    directories = lab.directories()
    await open_flights(directories)
    lab.fill(await directories.open_log(TopicPartition("gone", 3), OTHER_ID, CONFIG), 10)
    await directories.open_log(TopicPartition("moved", 0), TOPIC_ID, CONFIG)
    await shut(directories)
    directories = lab.directories()
    asked: list[tuple[UUID, int]] = []

    def is_placed_here(topic_id: UUID, index: int) -> bool:
        asked.append((topic_id, index))
        return topic_id == TOPIC_ID

    for _ in range(2):
        await set_strays_aside(directories, [FLIGHTS], is_placed_here)
    assert asked == [(OTHER_ID, 3), (TOPIC_ID, 0), (TOPIC_ID, 0)]
    names = lab.names("/data")
    (stray,) = [name for name in names if name.endswith("-stray")]
    assert "00000000000000000000.log" in lab.names(f"/data/{stray}")
    assert {str(FLIGHTS), "moved-0"} <= set(names)
    assert "gone-3" not in names


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: what?"])
async def test_a_directory_that_does_not_say_whose_it_is_stays(lab: Lab, content: bytes | None) -> None:
    directories = lab.directories()
    await directories.open_log(TopicPartition("gone", 3), OTHER_ID, CONFIG)
    await shut(directories)
    lab.disk.remove("/data/gone-3/partition.metadata")
    if content is not None:
        lab.write("partition.metadata", content, directory="/data/gone-3")
    await set_strays_aside(lab.directories(), [], lambda *_: False)
    assert "gone-3" in lab.names("/data")


async def test_a_partition_in_two_directories_is_refused(lab: Lab) -> None:
    directories = lab.directories("/data/a", "/data/b")
    await open_flights(directories)
    await shut(directories)
    lab.disk.make_directory("/data/b/flights-0")
    directories = lab.directories("/data/a", "/data/b")
    with pytest.raises(KafkaError, match="several log directories"):
        await open_flights(directories)


async def test_a_damaged_log_is_refused_and_the_others_open(lab: Lab) -> None:
    directories = lab.directories()
    healthy = TopicPartition("healthy", 0)
    for name in (FLIGHTS, healthy):
        log = await directories.open_log(name, TOPIC_ID, CONFIG)
        lab.fill(log, 10)
        lab.flush(log)
    await directories.write_checkpoints()
    lab.kill()
    data = lab.read("00000000000000000000.log")
    lab.write("00000000000000000000.log", data[:500])
    directories = lab.directories()
    with pytest.raises(KafkaError) as caught:
        await open_flights(directories)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (await directories.open_log(healthy, TOPIC_ID, CONFIG)).end_offset == 10
    await shut(directories)
    assert not lab.directories().all()[0].was_clean


async def test_a_failed_directory_takes_only_its_own_logs_offline(lab: Lab) -> None:
    directories = lab.directories("/data/a", "/data/b")
    names = [TopicPartition("t", partition) for partition in range(4)]
    logs = [await directories.open_log(name, TOPIC_ID, CONFIG) for name in names]
    heard = []
    directories.on_failure(lambda path, error: heard.append(path))
    home = directories.log_directory_of(names[0])
    lab.disk.faults.append(
        FailOperations(operations={"pwrite"}, path_test=lambda path: path.startswith(home))
    )
    with pytest.raises(KafkaError):
        lab.append(logs[0])
    assert heard == [home]
    for name, log in zip(names, logs, strict=True):
        if directories.log_directory_of(name) == home:
            assert log.failed is not None
        else:
            lab.append(log)
    assert not directories.all_failed
    fresh = TopicPartition("t", 9)
    with pytest.raises(KafkaError, match="may be in a log directory that is offline"):
        await directories.open_log(fresh, TOPIC_ID, CONFIG)
    await directories.open_log(fresh, TOPIC_ID, CONFIG, is_new=True)
    assert directories.log_directory_of(fresh) != home
    await shut(directories)
    states = {
        directory.path: directory.was_clean for directory in lab.directories("/data/a", "/data/b").all()
    }
    assert states == {path: path != home for path in states}


async def test_fail_takes_the_directory_of_a_log_offline(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    assert directories.fail(log, OSError(errno.EIO, "sync")) == "/data"
    assert directories.all_failed
    assert directories.all()[0].offline is not None
    assert log.failed is not None


async def test_a_log_comes_back_when_the_full_disk_has_space_again(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.medium.capacity_bytes = 100_000
    with pytest.raises(KafkaError):
        lab.fill(log, 1000)
    assert directories.failed_logs() == [log]
    assert not await directories.repair(log)
    lab.medium.capacity_bytes = None
    assert await directories.repair(log)
    assert directories.failed_logs() == []
    lab.append(log)


async def test_retention_removes_files_and_idle_producers(lab: Lab) -> None:
    directories = lab.directories(producer_expiration_ms=1000)
    config = LogConfig(retention_ms=1000, file_delete_delay_ms=0)
    log = await directories.open_log(FLIGHTS, TOPIC_ID, config)
    lab.append(log, producer=(9, 0, 0))
    lab.flush(log)
    lab.now_ms += 1001
    (deleted,) = await directories.apply_retention(log, lab.now_ms)
    assert deleted.end_offset == 1
    await directories.apply_retention(log, lab.now_ms)
    assert [name for name in lab.names() if name.endswith((".log", ".deleted"))] == [
        "00000000000000000001.log"
    ]
    assert lab.append(log, producer=(9, 0, 77)).first_offset == 1


def test_an_unusable_first_directory_is_a_clear_error_and_another_one_is_offline(lab: Lab) -> None:
    lab.write("file", b"", directory="/data")
    with pytest.raises(ConfigError, match="data directory /data/file cannot be used"):
        lab.directories("/data/file", "/data/a")
    directories = lab.directories("/data/a", "/data/file")
    assert [directory.offline is None for directory in directories.all()] == [True, False]


def test_no_directory_or_one_named_twice_is_refused(lab: Lab) -> None:
    with pytest.raises(ConfigError, match="each once"):
        lab.directories("/data", "/data")


def test_a_damaged_checkpoint_costs_a_scan_and_nothing_else(lab: Lab) -> None:
    lab.directories().close()
    lab.write("recovery-point-offset-checkpoint", b"0\n7\n", directory="/data")
    directory = lab.directories().all()[0]
    assert directory.recovery_points == {}
    assert not directory.was_clean


async def test_checkpoints_are_written_only_when_they_changed(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.append(log)
    lab.flush(log)
    await directories.write_checkpoints()
    lab.disk.points = []
    await directories.write_checkpoints()
    assert lab.disk.points == []


async def test_checkpoints_keep_what_they_say_of_logs_that_are_not_open(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    lab.fill(log, 9)
    await shut(directories)
    directories = lab.directories()
    await directories.open_log(TopicPartition("other", 0), TOPIC_ID, CONFIG)
    await directories.write_checkpoints()
    assert b"flights 0 9\n" in lab.disk.read("/data/recovery-point-offset-checkpoint")


async def test_a_new_data_directory_is_durable_with_its_parents(lab: Lab) -> None:
    directories = lab.directories("/data/deep/below")
    log = await open_flights(directories)
    lab.append(log, b"kept")
    lab.flush(log)
    lab.cut_power()
    assert lab.values(await open_flights(lab.directories("/data/deep/below"))) == [b"kept"]


async def test_a_directory_that_a_killed_broker_made_is_made_durable_by_the_next(lab: Lab) -> None:
    lab.disk.make_directory("/data/deep/below")
    lab.kill()
    log = await open_flights(lab.directories("/data/deep/below"))
    lab.append(log, b"kept")
    lab.flush(log)
    lab.cut_power()
    assert lab.values(await open_flights(lab.directories("/data/deep/below"))) == [b"kept"]


async def test_after_a_kill_the_names_of_all_logs_are_made_durable_at_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of logs a sync of the same directory for each is most of the time that a start takes."""
    names = [TopicPartition("many", index) for index in range(20)]
    directories = lab.directories()
    for name in names:
        lab.append(await directories.open_log(name, TOPIC_ID, CONFIG), b"not synced")
    lab.kill()
    synced: list[str] = []
    sync = lab.disk.sync_directory

    def counted(path: str) -> None:
        synced.append(path)
        sync(path)

    monkeypatch.setattr(lab.disk, "sync_directory", counted)
    directories = lab.directories()
    logs = [await directories.open_log(name, TOPIC_ID, CONFIG) for name in names]
    assert synced.count("/data") == 1
    assert all(lab.values(log) == [b"not synced"] for log in logs)
    monkeypatch.undo()
    lab.cut_power()
    directories = lab.directories()
    for name in names:
        assert lab.values(await directories.open_log(name, TOPIC_ID, CONFIG)) == [b"not synced"]


async def test_a_log_that_is_made_again_under_an_old_name_has_its_name_made_durable(lab: Lab) -> None:
    log = await open_flights(lab.directories())
    lab.append(log, b"of a former topic")
    lab.flush(log)
    lab.kill()
    directories = lab.directories()
    await open_flights(directories)
    await directories.delete_log(FLIGHTS)
    log = await open_flights(directories, OTHER_ID)
    lab.append(log, b"kept")
    lab.flush(log)
    lab.cut_power()
    assert lab.values(await open_flights(lab.directories(), OTHER_ID)) == [b"kept"]


async def test_a_log_that_no_one_touched_costs_nothing_to_close(lab: Lab) -> None:
    directories = lab.directories()
    log = await open_flights(directories)
    for sequence in range(3):
        lab.append(log, producer=(7, 0, sequence))
    await shut(directories)
    before = {name: lab.read(name) for name in lab.names()}
    for _ in range(2):
        directories = lab.directories()
        await open_flights(directories)
        count = lab.disk.point_count
        await directories.close_logs()
        assert lab.disk.point_count == count
        directories.close()
    assert {name: lab.read(name) for name in lab.names()} == before
    directories = lab.directories()
    log = await open_flights(directories)
    lab.append(log, producer=(7, 0, 3))
    await shut(directories)
    directories = lab.directories()
    assert lab.append(await open_flights(directories), producer=(7, 0, 3)).duplicate


@pytest.mark.parametrize("file", ["recovery-point-offset-checkpoint", "log-extents"])
@pytest.mark.parametrize(("error", "fails"), [(errno.EIO, True), (errno.EROFS, True), (errno.ENOSPC, False)])
async def test_an_error_at_one_of_our_own_files_takes_its_directory_offline_unless_the_disk_is_full(
    lab: Lab, file: str, error: int, fails: bool
) -> None:
    """As Kafka does: a disk that cannot write a small file cannot be trusted with records."""
    directories = lab.directories()
    log = await open_flights(directories)
    await directories.write_checkpoints()
    lab.append(log)
    lab.flush(log)
    heard: list[str] = []
    directories.on_failure(lambda path, error: heard.append(path))
    fault = FailOperations(
        operations={"pwrite", "sync", "rename"}, error=error, path_test=lambda path: file in path
    )
    lab.disk.faults.append(fault)
    await directories.write_extents()
    await directories.write_checkpoints()
    lab.disk.faults.remove(fault)
    assert heard == (["/data"] if fails else [])
    assert (log.failed is not None) == fails


async def test_what_was_lost_is_noted_when_there_is_space_again_and_hinders_no_start(lab: Lab) -> None:
    directories = lab.directories()
    await open_flights(directories)
    await directories.write_checkpoints()
    fault = FailOperations(operations={"pwrite"}, error=errno.ENOSPC)
    lab.disk.faults.append(fault)
    lost = TopicPartition("lost", 0)
    with pytest.raises(LostRecordsError):
        await directories.open_log(lost, OTHER_ID, CONFIG, if_absent=MissingLogAction.LOST)
    await directories.note_evidence()
    assert directories.owes_evidence
    lab.disk.faults.remove(fault)
    await directories.record_created_logs()
    assert not directories.owes_evidence
    lab.kill()
    assert lab.directories().was_held(lost, OTHER_ID)


async def test_a_log_that_was_made_on_a_full_disk_is_written_down_later(lab: Lab) -> None:
    directories = lab.directories()
    await open_flights(directories)
    fault = FailOperations(
        operations={"pwrite"}, error=errno.ENOSPC, path_test=lambda path: "flights-0" not in path
    )
    lab.disk.faults.append(fault)
    await directories.record_created_logs()
    lab.disk.faults.remove(fault)
    await directories.record_created_logs()
    lab.kill()
    assert FLIGHTS in lab.directories().all()[0].held
