"""The broker as a process: what keeps it from starting, how it ends, and what is there after it was killed."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import confluent_kafka as ck
import pytest
from benchmarks.odradek_node import OdradekNode, serve_command, serve_environment
from confluent_kafka.admin import AdminClient
from tests.interop import wire
from tests.interop.server import Server
from tests.kit.waiting import eventually

START_SECONDS_MAX = 20
REQUEST_TIMED_OUT = 7
UNANSWERED_MAX = 500
PADDING = b"." * 500  # enough for several segments in a test of a few seconds


@pytest.fixture(autouse=True)
def _only_ours(server_kind):
    if server_kind == "kafka":
        pytest.skip("about Odradek's own process")


@pytest.fixture
def start(tmp_path):
    """Starts brokers in this test's directory; whatever still runs at the end is stopped."""
    started = []

    def make(name="node", **settings):
        node = OdradekNode(
            directory=tmp_path / name, settings={k.replace("_", "."): v for k, v in settings.items()}
        )
        started.append(node)
        return node.start()

    yield make
    for node in started:
        node.stop()


def _refusal(*arguments: str) -> str:
    """What `odradek serve` writes on standard error when it cannot start; fails if it starts or shows a traceback."""
    process = subprocess.run(
        serve_command(*arguments),
        env=serve_environment(),
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    assert process.returncode != 0
    assert process.stdout == ""
    assert "Traceback" not in process.stderr
    lines = [line for line in process.stderr.splitlines() if line.strip()]
    sentences = [line for line in lines if " INFO " not in line and " ERROR " not in line]
    assert len(sentences) == 1, process.stderr
    return sentences[0]


def test_a_port_in_use_is_reported_in_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        said = _refusal("--data", str(tmp_path / "d"), "--listen", address)
    assert address in said


def test_a_refused_start_leaves_the_data_usable(tmp_path, start):
    with socket.create_server(("127.0.0.1", 0)) as other:
        _refusal("--data", str(tmp_path / "node/data"), "--listen", f"127.0.0.1:{other.getsockname()[1]}")
    Server(kind="odradek", node=start()).create_topic("works")


def test_a_data_directory_in_use_is_reported_in_one_sentence(start):
    node = start()
    said = _refusal("--data", str(node.data_directory), "--listen", "127.0.0.1:0")
    assert str(node.data_directory) in said
    Server(kind="odradek", node=node).create_topic("unaffected")


def test_data_of_two_clusters_is_reported_in_one_sentence(start, tmp_path):
    for name in ("one", "two"):
        start(name).terminate()
    directories = f"{tmp_path}/one/data,{tmp_path}/two/data"
    said = _refusal("--listen", "127.0.0.1:0", "--set", f"log.dirs={directories}")
    assert "cluster" in said


def test_data_of_another_broker_is_reported_in_one_sentence(start, tmp_path):
    start().terminate()
    said = _refusal("--data", str(tmp_path / "node/data"), "--listen", "127.0.0.1:0", "--set", "node.id=77")
    assert "77" in said


def test_a_data_directory_under_a_file_is_reported_in_one_sentence(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    said = _refusal("--data", str(tmp_path / "file" / "data"), "--listen", "127.0.0.1:0")
    assert str(tmp_path / "file") in said


def test_a_data_directory_where_nothing_can_be_made_is_reported_in_one_sentence():
    assert "/proc/odradek" in _refusal("--data", "/proc/odradek", "--listen", "127.0.0.1:0")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_data_directory_without_rights_is_reported_in_one_sentence(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for parent in (tmp_path, *list(tmp_path.parents)[:3]):
        parent.chmod(0o755)
    process = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "test", "-w", str(closed)],
        check=False,
    )
    assert process.returncode == 1
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    process = subprocess.run(
        [*command, *serve_command("--data", str(closed / "data"), "--listen", "127.0.0.1:0")],
        env={**serve_environment(), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=START_SECONDS_MAX,
        check=False,
    )
    if "No module named" in process.stderr or "can't open" in process.stderr:
        pytest.skip("the interpreter itself is out of reach for another user here")
    assert process.returncode != 0
    assert "Traceback" not in process.stderr
    assert str(closed) in process.stderr


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("num.partitions=many", ["num.partitions", "many"]),
        ("num.partitions=0", ["num.partitions", "0"]),
        ("log.segment.bytes=-1", ["log.segment.bytes", "-1"]),
        ("log.cleanup.policy=burn", ["log.cleanup.policy", "burn"]),
        ("auto.create.topics.enable=perhaps", ["auto.create.topics.enable", "perhaps"]),
        ("listeners=PLAINTEXT://127.0.0.1:notaport", ["notaport"]),
        ("no-equals-sign", ["no-equals-sign"]),
    ],
)
def test_a_setting_that_cannot_be_is_reported_in_one_sentence(tmp_path, pair, words):
    said = _refusal("--data", str(tmp_path / "d"), "--set", pair)
    assert all(word in said for word in words), said


def test_a_settings_file_that_is_not_there_is_reported_in_one_sentence(tmp_path):
    assert "missing.properties" in _refusal(
        "--data", str(tmp_path / "d"), str(tmp_path / "missing.properties")
    )


def test_a_setting_no_one_knows_is_warned_about_and_does_not_stop_the_start(start):
    node = start(no_such_setting="1")
    assert "no.such.setting" in node.log_file.read_text()


def test_sigterm_ends_it_cleanly_with_clients_connected_and_waiting(start):
    node = start()
    server = Server(kind="odradek", node=node)
    server.create_topic("t")
    with wire.Connection(server.address) as waiting, wire.Connection(server.address) as idle:
        idle.call(wire.API_VERSIONS, 0, b"")
        assert wire.produce(waiting, "t", wire.batch(wire.records(b"kept"), 1)).error_code == 0
        waiting.send(wire.FETCH, 4, wire.fetch_body("t", 1, wait_ms=60_000))
        assert node.terminate() == 0
    assert "Traceback" not in node.log_file.read_text()
    node.start()
    with wire.Connection(server.address) as again:
        assert b"kept" in wire.fetch(again, "t", 0).records


def test_sigint_ends_it_cleanly_too(start):
    node = start()
    os.kill(node.pid, signal.SIGINT)
    assert node.terminate() == 0


def _produce_until(stop: threading.Event, bootstrap: str, acknowledged: dict[int, bytes], first: int) -> None:
    """Produce numbered values as fast as they are taken; note offset and value of each that was acknowledged."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "acks": "all", "log_level": 0})
    number = first

    def noted(error, message):
        if error is None:
            acknowledged[message.offset()] = message.value()

    while not stop.is_set():
        while len(producer) < UNANSWERED_MAX:
            producer.produce("t", b"%d" % number + PADDING, partition=0, on_delivery=noted)
            number += 1
        producer.poll(0.01)
    producer.purge()
    producer.flush(5)


def test_what_was_acknowledged_survives_kill_9_again_and_again(start):
    node = start(log_segment_bytes="1048576")
    server = Server(kind="odradek", node=node)
    server.create_topic("t")
    acknowledged: dict[int, bytes] = {}
    for round_number in range(4):
        stop, known = threading.Event(), len(acknowledged)
        worker = threading.Thread(
            target=_produce_until, args=(stop, node.bootstrap, acknowledged, round_number * 1_000_000)
        )
        worker.start()
        eventually(lambda known=known: len(acknowledged) >= known + 2000, every_s=0.01)
        node.kill()
        stop.set()
        worker.join()
        node.start()
    records = _everything(node.bootstrap, max(acknowledged) + 1)
    assert {offset: records.get(offset) for offset in acknowledged} == acknowledged
    assert "Traceback" not in node.log_file.read_text()


def _everything(bootstrap: str, count: int) -> dict[int, bytes]:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False, "log_level": 2}
    )
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    results: dict[int, bytes] = {}
    try:
        while len(results) < count:
            message = consumer.poll(10)
            assert message is not None, f"only {len(results)} of {count} records came"
            for response in (message, *consumer.consume(10_000, timeout=0)):
                assert response.error() is None
                results[response.offset()] = response.value()
    finally:
        consumer.close()
    return results


def test_topics_and_settings_survive_kill_9(start, tmp_path):
    node = start()
    server = Server(kind="odradek", node=node)
    for number in range(5):
        server.create_topic(f"t{number}", number + 1, {"retention.ms": f"{number + 1}000000"})
    node.kill()
    node.start()
    with wire.Connection(server.address) as peer:
        for number in range(5):
            assert wire.is_led(peer, f"t{number}", number)
            assert not wire.is_led(peer, f"t{number}", number + 1)


def _cpu_nanoseconds(pid: int) -> int:
    """Exact CPU time of all threads, where psutil's clock ticks are too coarse."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def _cpu_in_a_second(pid: int) -> int:
    before = _cpu_nanoseconds(pid)
    time.sleep(1)
    return _cpu_nanoseconds(pid) - before


def test_an_idle_broker_uses_no_measurable_cpu(start):
    node = start()
    server = Server(kind="odradek", node=node)
    server.create_topic("t", 50)
    with wire.connections(server.address, 20) as idle:
        for connection in idle:
            connection.call(wire.API_VERSIONS, 0, b"")
        for _ in range(10):  # it may have work left; and a busy machine makes the same work look like more
            used = _cpu_in_a_second(node.pid)
            if used < 5_000_000:
                break
    assert used < 5_000_000, f"{used / 1e6:.1f} ms of CPU in a second"


def test_the_space_of_a_deleted_topic_is_free_soon(start):
    node = start()
    server = Server(kind="odradek", node=node)
    server.create_topic("t")
    with wire.Connection(server.address) as peer:
        assert wire.produce(peer, "t", wire.batch(wire.records(bytes(500_000)), 1)).error_code == 0
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    admin.delete_topics(["t"])["t"].result(20)
    eventually(
        lambda: [path.name for path in node.data_directory.iterdir() if path.name.startswith("t-0")],
        "no file of the deleted topic",
        holds=lambda names: not names,
    )
    open_files = [
        link.readlink().name for link in Path(f"/proc/{node.pid}/fd").iterdir() if link.is_symlink()
    ]
    assert [name for name in open_files if "(deleted)" in name and "memfd:" not in name] == []


def test_it_survives_running_out_of_file_descriptors(start):
    node = start()
    server = Server(kind="odradek", node=node)
    server.create_topic("t")
    batch = wire.batch(wire.records(b"x"), 1)
    with wire.Connection(server.address) as healthy:
        in_use = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
        resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (in_use + 20, in_use + 20))
        with wire.connections(server.address, 40):
            during = wire.produce(healthy, "t", batch, timeout_ms=500)
            assert during.error_code in {0, REQUEST_TIMED_OUT}, (
                "it may be late to flush, but the disk is not at fault"
            )
        with wire.Connection(server.address) as later:
            assert wire.produce(later, "t", batch).error_code == 0
            assert wire.fetch(later, "t", 0).high_watermark == 2
    assert node.terminate() == 0
