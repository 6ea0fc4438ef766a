"""`odradek pipeline` and a supervisor, against a real broker. Runners are scripts without Spark."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.commands import RunningCommand
from tests.kit.waiting import eventually
from tests.unit.pipelines.conftest import document, fake_command

from odradek import Admin, Producer
from odradek.client.settings.settings import AdminSettings
from odradek.pipelines.document import PIPELINES_TOPIC, Desired, PipelineDocument, PipelineVersion
from odradek.pipelines.membership import supervisor_of
from odradek.pipelines.program_file import outline_of_file
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.serving import AnotherSupervisor, ServeTerms, serve
from odradek.pipelines.status import STATUS_TOPIC
from odradek.pipelines.store import PipelineConflict, PipelineStore
from odradek.runtime.real_clock import SystemClock, SystemEntropy
from odradek.testing import LocalBroker

Run = Callable[..., str]
_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"p{time.time_ns()}-{next(_numbers)}"


@pytest.fixture
def store(bootstrap: str) -> Iterator[PipelineStore]:
    with PipelineStore(bootstrap) as store:
        yield store


@pytest.fixture(autouse=True)
def no_pipeline_stays(bootstrap: str) -> Iterator[None]:
    """All tests share a broker, and so its pipelines."""
    yield
    with PipelineStore(bootstrap) as store:
        for name in store.documents():
            store.change(name, lambda before: None)


class Supervising:
    """`odradek pipelines serve` on a thread, with runners that are scripts."""

    def __init__(self, bootstrap: str, state: Path, name: str, **client: Any) -> None:
        self.lines: list[str] = []
        self.launched: list[RunnerProcess] = []
        self._stopping = threading.Event()
        terms = ServeTerms(servers=bootstrap, state_directory=state, name=name, client=client)
        self._thread = threading.Thread(target=self._serve, args=[terms])
        self._thread.start()

    def _serve(self, terms: ServeTerms) -> None:
        serve(
            terms,
            self._launch,
            SystemClock(),
            SystemEntropy(),
            should_stop=self._stopping.is_set,
            pause=time.sleep,
            tell=self.lines.append,
        )

    def _launch(self, wanted: PipelineDocument) -> RunnerProcess:
        self.launched.append(RunnerProcess(fake_command(wanted.current.args)))
        return self.launched[-1]

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def supervising(bootstrap: str, tmp_path: Path) -> Iterator[Callable[[str], Supervising]]:
    made: list[Supervising] = []

    def begin(name: str) -> Supervising:
        made.append(Supervising(bootstrap, tmp_path / name, name))
        return made[-1]

    yield begin
    for supervisor in made:
        supervisor.stop()


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "program.py"
    file.touch()
    return str(file)


@pytest.fixture
def phase_of(run: Run) -> Callable[[str], str | None]:
    def phase(name: str) -> str | None:
        statuses = {row["name"]: row["status"] for row in json.loads(run("pipeline", "list", "--json"))}
        return statuses[name] and statuses[name]["phase"]

    return phase


def test_a_change_is_there_for_everyone(store: PipelineStore, name: str) -> None:
    made = store.change(name, lambda before: document(name))
    assert store.document(name) == made
    changed = store.change(name, lambda before: before.changed(1, "ann", "stop", desired=Desired.STOPPED))
    assert changed is not None
    assert (store.document(name).desired, store.document(name).revision) == (Desired.STOPPED, 2)
    store.change(name, lambda before: None)
    assert name not in store.documents()


def test_a_cluster_that_never_had_a_pipeline_is_not_asked_for_offsets_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with LocalBroker() as broker, PipelineStore(broker.address) as store:
        monkeypatch.setattr(store.admin, "list_offsets", lambda *_, **__: pytest.fail("that takes a minute"))
        assert (store.documents(), store.statuses()) == ({}, {})


def test_the_second_of_two_learns_who_was_first(store: PipelineStore, name: str) -> None:
    store.change(name, lambda before: document(name))
    store.change(name, lambda before: before.changed(1, "ann@here", "stop"), expected_revision=1)
    with pytest.raises(
        PipelineConflict, match=r"is at revision 2, not 1 \(the last change: stop, by ann@here\)"
    ):
        store.change(name, lambda before: before.changed(1, "bob@there", "pause"), expected_revision=1)
    assert [change.by for change in store.document(name).history] == ["ann@here"]


def test_changes_at_the_same_time_are_all_made_or_refused_with_a_reason(bootstrap: str, name: str) -> None:
    with PipelineStore(bootstrap) as first:
        first.change(name, lambda before: document(name))
    made: list[str] = []
    refused: list[str] = []

    def change(who: str) -> None:
        with PipelineStore(bootstrap) as store:
            try:
                store.change(name, lambda before: before.changed(1, who, "start"))
                made.append(who)
            except PipelineConflict as conflict:
                refused.append(str(conflict))

    threads = [threading.Thread(target=change, args=[f"w{number}"]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with PipelineStore(bootstrap) as store:
        kept = store.document(name)
    assert len(made) + len(refused) == 4
    assert sorted(change.by for change in kept.history) == sorted(made)
    assert kept.revision == 1 + len(made)
    assert all("others changed pipelines" in reason for reason in refused)


def test_a_pipeline_is_run_paused_resumed_stopped_and_deleted(
    run: Run,
    name: str,
    program: str,
    supervising: Callable[[str], Supervising],
    phase_of: Callable[[str], str | None],
    errors: list[str],
) -> None:
    run("pipeline", "run", program, "--name", name, "--", "say=hello", "run")
    assert "no one supervises" in errors[0]
    supervisor = supervising("first")
    eventually(lambda: phase_of(name) == "running")
    assert run("pipeline", "logs", name) == "hello\n"
    for verb, phase in (
        ("pause", "paused"),
        ("resume", "running"),
        ("stop", "stopped"),
        ("start", "running"),
    ):
        run("pipeline", verb, name)
        assert errors == [f"pipeline {name} is to be {_wanted(verb)}; first at 127.0.0.1 sees to it"]
        eventually(lambda phase=phase: phase_of(name) == phase)
    described = run("pipeline", "describe", name)
    assert "supervisor  first at 127.0.0.1" in described
    assert len(supervisor.launched) == 2, "the process stayed while it was paused"
    run("pipeline", "resume", name, code=1)
    assert errors == [f"odradek: pipeline {name} is running, not paused: `start` starts it"]
    run("pipeline", "delete", name)
    eventually(lambda: supervisor.launched[-1].end() is not None)
    run("pipeline", "describe", name, code=1)
    assert f"there is no pipeline {name!r}" in errors[0]


def _wanted(verb: str) -> str:
    return {"pause": "paused", "resume": "running", "stop": "stopped", "start": "running"}[verb]


def test_lag_and_the_failed_record_are_reported(
    run: Run, name: str, program: str, supervising: Callable[[str], Supervising], topic: Callable[..., str]
) -> None:
    run("pipeline", "run", program, "--name", name, "--", "run", "rows=5", "fail=no JSON", "exit=1")
    supervising("first")

    def row() -> dict[str, Any]:
        listed: dict[str, Any] = next(
            entry for entry in json.loads(run("pipeline", "list", "--json")) if entry["name"] == name
        )
        return listed

    eventually(lambda: row()["status"] is not None and row()["status"]["failure"] is not None)
    assert "no JSON [in-0 at offset 7]" in run("pipeline", "list")
    lag = json.loads(run("pipeline", "lag", name, "--json"))
    assert lag == [{"topic": "in", "partition": 0, "position": 5, "end": None, "lag": None}]


def test_who_waits_says_who_has_it_and_takes_over(
    run: Run,
    bootstrap: str,
    name: str,
    program: str,
    supervising: Callable[[str], Supervising],
    phase_of: Callable[[str], str | None],
) -> None:
    run("pipeline", "run", program, "--name", name, "--", "run")
    first = supervising("first")
    eventually(lambda: phase_of(name) == "running")
    second = supervising("second")
    eventually(lambda: second.lines)
    assert second.lines == [
        f"first at 127.0.0.1 supervises the pipelines of {bootstrap}: this one waits until that ends"
    ]
    assert (len(first.launched), second.launched) == (1, [])
    first.stop()
    assert first.launched[0].end() == 0
    eventually(lambda: second.launched)
    eventually(lambda: phase_of(name) == "running")
    with Admin(bootstrap) as admin:
        assert supervisor_of(admin) == "second at 127.0.0.1"


def test_two_supervisors_do_not_share_a_state_directory(
    bootstrap: str, tmp_path: Path, supervising: Callable[[str], Supervising]
) -> None:
    first = supervising("first")
    eventually(lambda: first.lines)
    terms = ServeTerms(servers=bootstrap, state_directory=tmp_path / "first", name="second")
    with pytest.raises(AnotherSupervisor, match=r"process \d+ supervises pipelines in .*first: stop it"):
        serve(
            terms,
            lambda wanted: pytest.fail("it started something"),
            SystemClock(),
            SystemEntropy(),
            should_stop=lambda: False,
            pause=time.sleep,
            tell=lambda line: None,
        )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["describe", "nothing"], "odradek: RESOURCE_NOT_FOUND: there is no pipeline 'nothing'"),
        (["stop", "nothing"], "odradek: RESOURCE_NOT_FOUND: there is no pipeline 'nothing'"),
        (["run", "{program}", "--name", "a b"], "odradek: pipeline name 'a b'"),
        (["run", "{program}", "--name", "x", "--sleep-after", "soon"], "odradek: 'soon' is no duration"),
    ],
)
def test_what_goes_wrong_is_one_line(
    run: Run, program: str, errors: list[str], words: list[str], line: str
) -> None:
    run("pipeline", *(word.format(program=program) for word in words), code=1)
    assert len(errors) == 1
    assert errors[0].startswith(line)


def test_the_topic_is_compacted(bootstrap: str, store: PipelineStore, name: str) -> None:
    store.change(name, lambda before: document(name))
    with Admin(bootstrap) as admin:
        [place] = admin.describe_topics([PIPELINES_TOPIC])[PIPELINES_TOPIC].topic_partitions
    assert place.partition == 0


def test_a_supervisor_ends_although_its_brokers_are_away(tmp_path: Path) -> None:
    """What it still has to say is given up."""
    wanted = document("totals", "run", "rows=5")
    with LocalBroker() as broker:
        with PipelineStore(broker.address) as store:
            store.change("totals", lambda before: wanted)
        supervisor = Supervising(broker.address, tmp_path, "me")
        try:
            eventually(lambda: supervisor.launched)
        finally:
            broker.stop()
            supervisor.stop()
    assert supervisor.launched[0].end() == 0


@pytest.fixture
def streams_program(tmp_path: Path, topic: Callable[..., str]) -> tuple[Path, str]:
    """A file that copies a topic to another one with two partitions, whose name it gives, too."""
    target = topic(partitions=2, **{"cleanup.policy": "compact"})
    file = tmp_path / "copy.py"
    file.write_text(
        "from odradek.streams import Streams\n"
        f"app = Streams('copy')\napp.stream({topic()!r}, key='STRING').to({target!r}, name='out')\n"
    )
    return file, target


def test_a_pipeline_is_upgraded(
    run: Run,
    bootstrap: str,
    name: str,
    streams_program: tuple[Path, str],
    supervising: Callable[[str], Supervising],
    errors: list[str],
) -> None:
    file, target = streams_program
    outline = json.dumps(outline_of_file(file, [], {"ODRADEK_BOOTSTRAP": bootstrap}).as_json())
    run("pipeline", "run", str(file), "--name", name, "--", f"outline={outline}", "rows=3")
    possible = {
        row["mode"]: row for row in json.loads(run("pipeline", "upgrade", name, "--dry-run", "--json"))
    }
    assert [possible[mode]["possible"] for mode in ("keep", "carry", "rebuild")] == [False, False, True]
    run("pipeline", "upgrade", name, "--mode", "keep", code=1)
    assert errors[0].endswith("by keep: no supervisor has reported what runs: start the pipeline once")

    supervisor = supervising("first")

    def described() -> dict[str, Any]:
        content: dict[str, Any] = json.loads(run("pipeline", "describe", name, "--json"))
        return content

    eventually(lambda: (described()["status"] or {}).get("outline"))
    run("pipeline", "upgrade", name, "--mode", "keep")
    eventually(lambda: (status := described()["status"])["version"] == 2 and status["phase"] == "running")
    assert [version["checkpoint"] for version in described()["versions"]] == [f"{name}/v1"] * 2

    run("pipeline", "upgrade", name, "--mode", "rebuild")
    with Admin(bootstrap) as admin:
        assert len(admin.describe_topics([f"{target}.v3"])[f"{target}.v3"].partitions) == 2
    eventually(lambda: (described()["candidate_status"] or {}).get("phase") == "running")
    assert [row["version"] for row in (described()["status"], described()["candidate_status"])] == [2, 3]
    run("pipeline", "upgrade", name, "--mode", "keep", code=1)
    assert "version 3 is being rebuilt" in errors[0]
    pid = described()["candidate_status"]["pid"]
    run("pipeline", "upgrade", name, "--swap")
    eventually(lambda: described()["status"]["version"] == 3)
    assert (described()["status"]["pid"], len(supervisor.launched)) == (pid, 3)
    assert "outputs end in .v3" in run("pipeline", "describe", name)

    run("pipeline", "upgrade", name, "--mode", "rebuild")
    eventually(lambda: described()["candidate_status"])
    run("pipeline", "upgrade", name, "--abandon")
    eventually(lambda: supervisor.launched[3].end() is not None)
    assert described()["candidate"] is None


def test_a_stopped_pipeline_begins_again(
    run: Run,
    bootstrap: str,
    name: str,
    streams_program: tuple[Path, str],
    supervising: Callable[[str], Supervising],
    phase_of: Callable[[str], str | None],
    errors: list[str],
) -> None:
    file, _ = streams_program
    outline = json.dumps(outline_of_file(file, [], {"ODRADEK_BOOTSTRAP": bootstrap}).as_json())
    run("pipeline", "run", str(file), "--name", name, "--", f"outline={outline}")
    supervising("first")
    eventually(lambda: phase_of(name) == "running")
    run("pipeline", "reset", name, code=1)
    assert errors == [
        f"odradek: the desired state of pipeline {name} is running: `odradek pipeline stop {name}` first"
    ]
    run("pipeline", "repartition", name, "2", code=1)
    assert "is running" in errors[0]
    run("pipeline", "stop", name)
    eventually(lambda: phase_of(name) == "stopped")
    run("pipeline", "repartition", name, "2", code=1)
    assert "give Streams(partitions=2), and upgrade it" in errors[0]
    run("pipeline", "reset", name, "--empty-outputs", code=1)
    assert errors[0].startswith("odradek: POLICY_VIOLATION: the outputs could not be emptied")
    assert "Nothing was reset" in errors[0]
    run("pipeline", "reset", name)
    versions = json.loads(run("pipeline", "describe", name, "--json"))["versions"]
    assert [(version["way"], version["checkpoint"]) for version in versions] == [
        ("run", f"{name}/v1"),
        ("reset", f"{name}/v2"),
    ]


def test_a_supervisor_logs_in(tmp_path: Path) -> None:
    with LocalBroker(secure=True) as broker:
        settings = {"bootstrap.servers": broker.address, **broker.client_settings}
        client = AdminSettings.arguments(settings)
        del client["bootstrap_servers"]
        with PipelineStore(broker.address, **client) as store:
            store.change("copy", lambda before: document("copy", "run"))
            supervisor = Supervising(broker.address, tmp_path / "state", "s1", **client)
            try:
                eventually(lambda: "copy" in store.statuses())
                assert (supervisor_of(store.admin) or "").startswith("s1 at ")
            finally:
                supervisor.stop()
        assert supervisor.launched


def test_a_document_does_not_choose_what_upgrade_loads(
    run: Run, store: PipelineStore, name: str, tmp_path: Path, errors: list[str]
) -> None:
    """The command would run the file as the user who asks, so that user names it."""
    file, mark = tmp_path / "evil.py", tmp_path / "mark"
    file.write_text(f"open({str(mark)!r}, 'w')\ndef pipeline(spark): pass\n")
    version = PipelineVersion(number=1, program=str(file), checkpoint=f"{name}/v1")
    store.change(name, lambda before: PipelineDocument(name=name, revision=1, versions=(version,)))
    for words in (["--dry-run"], ["--mode", "keep"]):
        run("pipeline", "upgrade", name, *words, code=1)
        assert f"names {file}, which you did not run with these arguments on this machine" in errors[0]
        assert not mark.exists()
    run("pipeline", "upgrade", name, str(file), "--dry-run")
    assert mark.exists()


def test_settings_come_from_a_file_and_secret_ones_are_not_shown(
    run: Run, store: PipelineStore, name: str, program: str, tmp_path: Path, errors: list[str]
) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.executor.memory  2g\nspark.hadoop.fs.s3a.secret.key=PLANTED\n# spark.x=1\n")
    words = ["pipeline", "run", program, "--name", name, "--properties-file", str(file)]
    file.chmod(0o604)
    run(*words, code=1)
    assert "every user of this machine can read it" in errors[0]
    file.chmod(0o600)
    run(*words, "--conf", "spark.executor.memory=3g")
    assert store.document(name).conf == (
        ("spark.executor.memory", "3g"),
        ("spark.hadoop.fs.s3a.secret.key", "PLANTED"),
    )
    for shown in (run("pipeline", "describe", name), run("pipeline", "list", "--json")):
        assert "PLANTED" not in shown
        assert "3g" in shown
    file.write_text("memory=2g\n")
    run(*words, code=1)
    assert "memory is no setting of Spark" in errors[0]
    run("pipeline", "run", program, "--conf", "secret.key=PLANTED", code=1)
    assert "PLANTED" not in errors[0]


def test_a_supervisor_runs_programs_of_allowed_directories_and_those_run_by_hand(
    run: Run, bootstrap: str, store: PipelineStore, name: str, tmp_path: Path
) -> None:
    """The programs are no pipelines, so that Spark does not start: each leaves a mark when it is loaded."""
    tmp_path = tmp_path.resolve()
    (tmp_path / "allowed").mkdir()
    places = {"program": tmp_path / "allowed" / "a.py", "hand": tmp_path / "h.py", "evil": tmp_path / "e.py"}
    for kind, file in places.items():
        file.write_text(f"open({str(tmp_path / kind)!r}, 'w')\n")
    words = [
        "pipelines",
        "serve",
        "--state",
        str(tmp_path / "state"),
        "--programs",
        str(tmp_path / "allowed"),
    ]
    process = RunningCommand(*words)  # its environment names the broker
    try:
        for kind, file in places.items():
            if kind == "hand":
                run("pipeline", "run", str(file), "--name", f"{name}-{kind}")
                continue
            version = PipelineVersion(number=1, program=str(file), checkpoint=f"{name}/v1")
            document = PipelineDocument(name=f"{name}-{kind}", revision=1, versions=(version,))
            store.change(document.name, lambda _, document=document: document)  # type: ignore[misc]

        def lines() -> dict[str, str]:
            """What each pipeline failed of."""
            return {
                status.name.rpartition("-")[2]: status.failure.line
                for status in store.statuses().values()
                if status.phase.value == "failed" and status.failure is not None
            }

        eventually(lambda: len(lines()) == len(places))
        assert (tmp_path / "program").exists()
        assert (tmp_path / "hand").exists()
        assert not (tmp_path / "evil").exists()
        assert "defines no pipeline" in lines()["program"]
        assert "defines no pipeline" in lines()["hand"]
        assert f"program {places['evil']} is not run" in lines()["evil"]
        assert "--programs DIR" in run("pipeline", "describe", f"{name}-evil")
    finally:
        process.stop()


UNREADABLE = (
    b"no JSON",
    b"\xff",
    b"[]",
    b"7",
    b"null",
    b"{}",
    b'"x"',
    b'{"format": 99}',
    b"[" * 100_000,
    b'{"format": 1, "name": "x"}',
)


def test_an_unreadable_document_keeps_no_other_pipeline_from_running(
    bootstrap: str,
    store: PipelineStore,
    run: Run,
    errors: list[str],
    name: str,
    supervising: Callable[[str], Supervising],
) -> None:
    store.change(name, lambda before: document(name))
    broken = {f"{name}-{number}": content for number, content in enumerate(UNREADABLE)}
    revised = document(f"{name}-r").to_bytes().replace(b'"revision":1', b'"revision":Infinity')
    broken[f"{name}-r"] = revised
    try:
        with Producer(bootstrap) as producer:
            for key, content in broken.items():
                for topic in (PIPELINES_TOPIC, STATUS_TOPIC):
                    producer.send(topic, content, key=key.encode(), partition=0)
        supervising("first")
        eventually(lambda: name in store.statuses())
        listed = {entry["name"]: entry for entry in json.loads(run("pipeline", "list", "--json"))}
        assert "unreadable" not in listed[name]
        assert all("is unreadable: " in listed[key]["unreadable"] for key in broken)
        rows = run("pipeline", "list").splitlines()
        assert sum(row.split()[1:3] == ["-", "unreadable"] for row in rows) == len(broken)
        run("pipeline", "describe", f"{name}-0", code=1)
        assert f"the document of pipeline '{name}-0' in {PIPELINES_TOPIC} is unreadable" in errors[0]
        run("pipeline", "stop", f"{name}-0", code=1)
        run("pipeline", "stop", name)
    finally:
        with Producer(bootstrap) as producer:
            for key in broken:
                for topic in (PIPELINES_TOPIC, STATUS_TOPIC):
                    producer.send(topic, None, key=key.encode(), partition=0)
