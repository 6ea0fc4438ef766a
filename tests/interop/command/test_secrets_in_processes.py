"""Command lines are readable by every user of the machine: no process that we start has a password in its words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.commands import odradek_command

from odradek import Admin
from odradek.cli.sandbox.playground import Playground
from odradek.model.errors import OdradekError
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.program_file import ProgramSources, WrongProgram, outline_of_file
from odradek.pipelines.runner_process import RunnerProcess
from odradek.pipelines.serving import runner_command, runner_terms
from odradek.testing import Cluster

SECRET = "PLANTED-SECRET"
FILE = f"""\
listeners=SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=SCRAM-SHA-256
sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256
odradek.scram.first.users=SCRAM-SHA-256=[name=admin,password={SECRET}-1]
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{SECRET}-1";
config.providers=file
config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
"""
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "admin",
    "sasl_password": f"{SECRET}-1",
}
TELLING = """\
import json, pathlib, sys
words = pathlib.Path("/proc/self/cmdline").read_text().split("\\0")
pathlib.Path({file!r}).write_text(json.dumps([words, sys.argv, sys.stdin.read()]))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc here")


def started_by(pid: int) -> Iterator[int]:
    """The processes below one."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            yield int(path.parent.name)
            yield from started_by(int(path.parent.name))


def words_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def test_brokers_of_one_command_keep_their_file_s_login_and_its_passwords(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text(f"key={SECRET}-2\n")
    file = tmp_path / "server.properties"
    file.write_text(f"{FILE}delegation.token.secret.key=${{file:{tmp_path}/secrets.properties:key}}\n")
    for path in tmp_path.iterdir():
        path.chmod(0o600)
    with subprocess.Popen(
        odradek_command("serve", "--brokers", "2", str(file), "--data", str(tmp_path / "data")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ODRADEK_SSL_KEY_PASSWORD": f"{SECRET}-3"},
    ) as process:
        try:
            assert process.stdout is not None
            word, bootstrap = process.stdout.readline().split()
            assert word == "ready"
            brokers = list(started_by(process.pid))
            assert len(brokers) == 2
            assert [pid for pid in (process.pid, *brokers) if SECRET in words_of(pid)] == []
            with pytest.raises(OdradekError), Admin(bootstrap, default_api_timeout_ms=3000) as stranger:
                stranger.list_topics()
            with Admin(bootstrap, **LOGIN) as admin:  # type: ignore[arg-type]
                assert len(admin.describe_cluster().brokers) == 2
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
    assert SECRET not in log
    assert "broker=1" in log
    assert " node=2 " in log


def test_clusters_for_tests_hand_passwords_over_in_private(tmp_path: Path) -> None:
    settings = dict(line.split("=", 1) for line in FILE.splitlines())
    with Cluster(brokers=1, settings=settings, data=tmp_path) as cluster:
        [broker] = cluster.brokers
        assert broker.pid is not None
        assert SECRET not in words_of(broker.pid)
        with Admin(cluster.address, **LOGIN) as admin:  # type: ignore[arg-type]
            assert admin.list_topics() == []
        broker.stop()
        broker.start()
        broker.wait_until_ready()
        with Admin(cluster.address, **LOGIN) as admin:  # type: ignore[arg-type]
            assert admin.list_topics() == []


def test_the_sandbox_with_locked_doors_does_too(tmp_path: Path) -> None:
    with Playground(tmp_path, brokers=1, secured=True) as playground:
        password = playground.admin_settings["sasl.jaas.config"].split('"')[3]
        [broker] = playground.fleet.brokers
        assert broker.pid is not None
        assert password not in words_of(broker.pid)
        assert playground.admin.list_topics() is not None


def test_a_pipeline_s_process_reads_its_settings_and_arguments_in_private(tmp_path: Path) -> None:
    seen, program = tmp_path / "seen.json", tmp_path / "program.py"
    program.write_text(TELLING.format(file=str(seen)))
    document = PipelineDocument(
        name="p",
        versions=(
            PipelineVersion(
                number=1, program=str(program), args=("--password", f"{SECRET}-4"), checkpoint="p/v1"
            ),
        ),
        conf=(("spark.hadoop.fs.s3a.secret.key", f"{SECRET}-5"),),
    )
    places = ProgramSources(directories=(str(tmp_path.resolve()),))
    runner = RunnerProcess(
        runner_command(document),
        terms=runner_terms(document, "127.0.0.1:1", tmp_path, places),
        directory=tmp_path,
    )
    try:
        os.waitid(os.P_PID, runner.pid, os.WEXITED | os.WNOWAIT)  # it defines no pipeline, so it ends
    finally:
        runner.kill()
        runner.end()
        runner.close()
    words, arguments, rest = json.loads(seen.read_text())
    assert SECRET not in " ".join(words)
    assert arguments[1:] == ["--password", f"{SECRET}-4"]
    assert rest == ""
    seen.unlink()
    with pytest.raises(WrongProgram):
        outline_of_file(program, ["--password", f"{SECRET}-4"], {})
    words, arguments, rest = json.loads(seen.read_text())
    assert SECRET not in " ".join(words)
    assert arguments[1:] == ["--password", f"{SECRET}-4"]
    assert rest == ""
