"""The `odradek` command against a real broker; `--server kafka` runs the same against Apache Kafka."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kit.commands import odradek_command

from odradek.cli.main import main
from odradek.client import Admin
from odradek.model.ids import TopicPartition

ANY_BYTES = bytes(range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    code: int
    out: bytes
    error: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> object:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Ran]


@pytest.fixture
def run(bootstrap: str, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in this process; it must succeed unless another code is expected."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", bootstrap)

    def run_command(*words: str, code: int = 0) -> Ran:
        try:
            left = main(words)
        except SystemExit as leaving:
            left = int(leaving.code or 0)
        out, error = capfdbinary.readouterr()
        ran = Ran(code=left, out=out, error=error.decode())
        assert ran.code == code, ran.error
        return ran

    return run_command


@pytest.fixture
def sent(run: Run, topic: Callable[..., str], tmp_path: Path) -> Callable[..., str]:
    """Sends `content` to a new topic with `produce` and some options; the topic's name."""

    def send(content: bytes, *words: str, partitions: int = 1) -> str:
        name = topic(partitions=partitions)
        path = tmp_path / "input"
        path.write_bytes(content)
        run("produce", name, str(path), *words)
        return name

    return send


def start(words: Sequence[str], **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(odradek_command(*words), **more)  # type: ignore[call-overload,no-any-return]


# -- produce and consume


def test_lines_come_out_as_they_went_in(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"one\r\ntwo\n\nfour \xff\x00")
    assert run("consume", name, "-e").out == b"one\ntwo\n\nfour \xff\x00\n"


def test_keys_headers_and_nulls_are_sent_and_shown(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"k1=v1\nk2=\n", "-K", "=", "--null", "", "-H", "source=tower", "-H", "flag")
    shown = run("consume", name, "-e", "-k", "-H", "-O", "-K", "|", "--null", "NULL")
    assert shown.lines == ["0:0|source=tower,flag=NULL|k1|v1", "0:1|source=tower,flag=NULL|k2|NULL"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_codec_and_every_acks_carries_records(
    run: Run, sent: Callable[..., str], compression: str, acks: str
) -> None:
    name = sent(b"x" * 1000 + b"\ny\n", "-z", compression, "--acks", acks)
    assert run("consume", name, "-n", "2").out == b"x" * 1000 + b"\ny\n"


@pytest.mark.parametrize("format_", ["hex", "base64", "json"])
def test_any_bytes_survive_a_round_trip(
    run: Run, sent: Callable[..., str], tmp_path: Path, format_: str
) -> None:
    first = sent(ANY_BYTES, "--format", "raw")
    copied = tmp_path / "copied"
    copied.write_bytes(run("consume", first, "-e", "--format", format_).out)
    second = sent(copied.read_bytes(), "--format", format_)
    assert run("consume", second, "-e", "--format", "raw").out == ANY_BYTES


def test_json_copies_records_with_all_their_parts(run: Run, sent: Callable[..., str]) -> None:
    record = {
        "key_base64": "/w==",
        "value": None,
        "headers": [{"name": "a", "value": "1"}, {"name": "a", "value": None}],
        "partition": 1,
        "timestamp": 1_372_939_200_000,
    }
    name = sent(json.dumps(record).encode(), "--json", partitions=2)
    original = run("consume", name, "-e", "--json")
    [shown] = original.json_lines
    assert shown == {"topic": name, "offset": 0, **record}
    copy = sent(original.out, "--json", partitions=2)
    [copied] = run("consume", copy, "-e", "--json").json_lines
    assert copied == {**shown, "topic": copy}


def test_a_template_prints_what_it_says(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"k:v\n", "-K", ":", "--timestamp", "2013-07-04T12:00:00Z")
    shown = run("consume", name, "-e", "-t", r"{topic} {offset} {time} {key}\t{value}\0")
    assert shown.out == f"{name} 0 2013-07-04T12:00:00.000Z k\tv\0".encode()


@pytest.mark.parametrize(
    ("start_at", "values"),
    [
        ("beginning", ["0", "1", "2", "3", "4"]),
        ("3", ["3", "4"]),
        ("-2", ["3", "4"]),
        ("-99", ["0", "1", "2", "3", "4"]),
        ("99", []),
        ("@2000", ["2", "3", "4"]),
        ("1970-01-01T00:00:03+00:00", ["3", "4"]),
        ("@9999", []),
        ("end", []),
    ],
)
def test_reading_starts_where_one_says(
    run: Run, sent: Callable[..., str], start_at: str, values: list[str]
) -> None:
    lines = "\n".join(json.dumps({"value": str(number), "timestamp": number * 1000}) for number in range(5))
    name = sent(lines.encode(), "--json", "-X", "linger.ms=0", "-X", "batch.size=1")
    assert run("consume", name, "--from", start_at, "-e").lines == values


def test_reading_at_an_offset_that_was_deleted_starts_at_the_first_that_is_left(
    run: Run, sent: Callable[..., str], bootstrap: str
) -> None:
    name = sent(b"0\n1\n2\n")
    with Admin(bootstrap) as admin:
        admin.delete_records({TopicPartition(name, 0): 2})
    assert run("consume", name, "--from", "0", "-e").lines == ["2"]
    assert run("topic", "describe", name).lines[-1].split()[-3:] == ["2", "3", "1"]


def test_one_partition_can_be_written_and_read_alone(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"a\nb\n", "--partition", "2", partitions=3)
    assert run("consume", name, "-e", "-p", "2").lines == ["a", "b"]
    assert run("consume", name, "-e", "-p", "0", "-p", "1").lines == []
    assert "has no partition 7" in run("consume", name, "-p", "7", code=1).error


def test_reading_ends_after_as_many_records_as_asked_for(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"".join(b"%d\n" % number for number in range(1000)))
    assert run("consume", name, "--max", "3").lines == ["0", "1", "2"]
    assert run("consume", name, "-e").lines == [str(number) for number in range(1000)]


def test_what_was_sent_is_summed_up_for_machines(run: Run, topic: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"ab\ncd\n")
    name = topic()
    summary = run("produce", name, str(path), "--summary", "--progress").json
    assert isinstance(summary, dict)
    assert (summary["topic"], summary["records"], summary["bytes"]) == (name, 2, 4)


def test_a_record_that_is_refused_is_named_by_its_line(
    run: Run, topic: Callable[..., str], tmp_path: Path
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"good\n" + b"x" * 5000 + b"\n")
    name = topic(**{"max.message.bytes": "1000"})
    refused = run("produce", name, str(path), "-X", "linger.ms=0", "-X", "batch.size=1", code=1)
    assert "line 2 was not delivered" in refused.error
    assert refused.error.count("\n") == 1


def test_standard_input_is_sent_as_it_comes(bootstrap: str, run: Run, topic: Callable[..., str]) -> None:
    name = topic()
    producing = start(["produce", name, "-b", bootstrap], stdin=subprocess.PIPE)
    assert producing.stdin is not None
    producing.stdin.write(b"first\n")
    producing.stdin.flush()
    assert run("consume", name, "-n", "1").lines == ["first"]
    producing.stdin.close()
    assert producing.wait(timeout=60) == 0


def test_following_prints_what_arrives_and_ends_quietly_on_ctrl_c(
    bootstrap: str, run: Run, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic()
    following = start(["consume", name, "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    path = tmp_path / "input"
    path.write_bytes(b"hello\n")
    run("produce", name, str(path))
    assert following.stdout is not None
    assert following.stdout.readline() == b"hello\n"
    following.send_signal(2)
    _, error = following.communicate(timeout=60)
    assert following.returncode == 130
    assert b"Traceback" not in error


def test_a_reader_that_goes_away_is_no_error(bootstrap: str, sent: Callable[..., str]) -> None:
    name = sent(b"".join(b"%0100d\n" % number for number in range(20_000)))
    reading = start(["consume", name, "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert reading.stdout is not None
    assert reading.stdout.readline() == b"%0100d\n" % 0
    reading.stdout.close()
    reading.stdout = None
    _, error = reading.communicate(timeout=60)
    assert error == b""


# -- topics, settings, the cluster


def test_a_topic_is_created_altered_and_deleted(run: Run, topic: Callable[..., str]) -> None:
    name = topic() + "-made"
    words = ["topic", "create", name, "-p", "2", "-r", "1", "--config", "retention.ms=1000", "--json"]
    created = run(*words).json
    assert isinstance(created, dict)
    assert (created["topic"], created["partitions"], created["replication_factor"]) == (name, 2, 1)
    assert "already exists" in run("topic", "create", name, code=1).error
    assert "exists already" in run("topic", "create", name, "--if-not-exists").error
    assert name in run("topic", "list").lines

    run("topic", "alter", name, "-p", "3", "--config", "max.message.bytes=2000", "--unset", "retention.ms")
    [described] = run("topic", "describe", name, "--json").json  # type: ignore[misc]
    assert described["configs"]["max.message.bytes"] == "2000"
    assert "retention.ms" not in described["configs"]
    assert [entry["partition"] for entry in described["partitions"]] == [0, 1, 2]
    assert [entry["end_offset"] for entry in described["partitions"]] == [0, 0, 0]

    run("topic", "delete", name)
    assert name not in run("topic", "list", "--json").json  # type: ignore[operator]


def test_describing_a_topic_shows_what_it_holds(run: Run, sent: Callable[..., str]) -> None:
    name = sent(b"a\nb\n")
    header, row = run("topic", "describe", name).lines[1:]
    assert header.split() == ["partition", "leader", "replicas", "isr", "first", "end", "offsets"]
    assert row.split()[-3:] == ["0", "2", "2"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["topic", "create", "bad/name"], "INVALID_TOPIC_EXCEPTION"),
        (["topic", "create", "t", "-r", "99"], "INVALID_REPLICATION_FACTOR"),
        (["topic", "create", "t", "-c", "retention.mss=1"], "INVALID_CONFIG"),
        (["topic", "create", "t", "-c", "retention.ms=soon"], "INVALID_CONFIG"),
        (["topic", "describe", "no-such-topic"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["topic", "delete", "no-such-topic"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["topic", "alter", "no-such-topic", "-p", "3"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["config", "set", "--topic", "no-such-topic", "retention.ms=1"], "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_the_broker_refuses_is_one_line_with_its_code(run: Run, words: list[str], line: str) -> None:
    refused = run(*words, code=1)
    assert line in refused.error
    assert refused.error.count("\n") == 1
    assert refused.out == b""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["topic", "alter", "t"], "nothing to alter"),
        (["config", "set", "retention.ms=1"], "name one of --topic, --broker"),
        (["config", "set", "retention.ms=1", "--broker", "one"], "expected a number"),
    ],
)
def test_wrong_use_is_reported_before_anything_is_asked(run: Run, words: list[str], line: str) -> None:
    assert line in run(*words, code=2).error


def test_settings_of_a_topic_are_set_shown_and_taken_back(run: Run, topic: Callable[..., str]) -> None:
    name = topic()
    run("config", "set", "--topic", name, "retention.ms=5000", "segment.bytes=2000000")
    shown = {entry["key"]: entry["value"] for entry in run("config", "show", "--topic", name, "--json").json}  # type: ignore[attr-defined]
    assert (shown["retention.ms"], shown["segment.bytes"]) == ("5000", "2000000")
    run("config", "unset", "--topic", name, "retention.ms")
    assert "retention.ms" not in [line.split()[0] for line in run("config", "show", "--topic", name).lines]
    every = run("config", "show", "--topic", name, "--all").lines
    assert any(line.startswith("retention.ms ") for line in every)


def test_defaults_of_topics_are_changed_on_running_brokers(
    run: Run, topic: Callable[..., str], server_kind: str
) -> None:
    run("config", "set", "--broker", "all", "log.segment.bytes=3000000")
    shown = run("config", "show", "--topic", topic(), "--all").lines
    run("config", "unset", "--broker", "all", "log.segment.bytes")
    assert any(line.split()[:2] == ["segment.bytes", "3000000"] for line in shown) or server_kind == "kafka"


def test_a_setting_without_effect_is_warned_about(run: Run, topic: Callable[..., str]) -> None:
    warned = run("config", "set", "--topic", topic(), "preallocate=true")
    assert "warning: topic setting preallocate is not supported yet" in warned.error


def test_the_cluster_is_described(run: Run, bootstrap: str) -> None:
    described = run("cluster", "describe", "--json").json
    assert isinstance(described, dict)
    [broker] = described["brokers"]
    assert broker["address"] == bootstrap.replace("localhost", "127.0.0.1") or broker["address"]
    assert broker["directories"][0]["bytes"] >= 0
    assert run("cluster", "describe").lines[0] == f"cluster {described['cluster']}"


def test_the_doctor_reaches_a_running_broker(run: Run, bootstrap: str, tmp_path: Path) -> None:
    report = run("doctor", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "-b", bootstrap, "--json").json
    assert isinstance(report, list)
    broker, report_line = report[-2:]
    assert (broker["level"], report_line["level"]) == ("ok", "ok")
    assert broker["about"] == f"broker at {bootstrap}"


def test_topics_are_completed_in_the_shell(bootstrap: str, topic: Callable[..., str]) -> None:
    name = topic()
    environment = {
        "_ODRADEK_COMPLETE": "bash_complete",
        "COMP_WORDS": f"odradek consume {name[:-1]}",
        "COMP_CWORD": "2",
        "ODRADEK_BOOTSTRAP": bootstrap,
        "PATH": "",
    }
    completing = start([], stdout=subprocess.PIPE, env=environment)
    out, _ = completing.communicate(timeout=60)
    assert f"plain,{name}" in out.decode().splitlines()
