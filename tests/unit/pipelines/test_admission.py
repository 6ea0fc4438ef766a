"""Documents come from a topic: what they may have a supervisor run, and what they may not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model.errors import ConfigError
from odradek.model.safe_text import safe_line
from odradek.pipelines import program_file
from odradek.pipelines.admission import Approval, Approvals, ProgramAdmission, RunRefused
from odradek.pipelines.document import PipelineDocument, PipelineVersion
from odradek.pipelines.program_file import MODULE, ProgramSources, WrongProgram, load_program

PROGRAM = "def pipeline(spark): return 'good'"
EVIL = "def pipeline(spark): return 'evil'"


@pytest.fixture(autouse=True)
def process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("sys.argv", list(sys.argv))
    monkeypatch.setattr("sys.path", list(sys.path))
    yield
    sys.modules.pop(MODULE, None)


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    directory = tmp_path.resolve() / "programs"
    directory.mkdir()
    (directory / "totals.py").write_text(PROGRAM)
    (tmp_path / "evil.py").write_text(EVIL)
    return directory


@pytest.fixture
def admission(tmp_path: Path, allowed: Path) -> ProgramAdmission:
    return ProgramAdmission(state_directory=tmp_path / "state", directories=(str(allowed),))


def document(program: Path | str, checkpoint: str = "totals/v1", **fields: object) -> PipelineDocument:
    version = PipelineVersion(number=1, program=str(program), checkpoint=checkpoint)
    return PipelineDocument(name="totals", versions=(version,), **fields)  # type: ignore[arg-type]


def loaded(admission: ProgramAdmission, program: Path) -> str:
    """Admitted, then loaded as a runner does."""
    places = admission.admit(document(program))
    pipeline = load_program(program, [], places).pipeline
    assert pipeline is not None
    return str(pipeline(None))


def test_a_program_runs_from_an_allowed_directory_also_by_a_link(
    admission: ProgramAdmission, allowed: Path, tmp_path: Path
) -> None:
    assert loaded(admission, allowed / "totals.py") == "good"
    (allowed / "releases").mkdir()
    (allowed / "releases" / "5.py").write_text(PROGRAM)
    (tmp_path / "current.py").symlink_to(allowed / "releases" / "5.py")
    assert loaded(admission, tmp_path / "current.py") == "good"
    linked = replace(admission, directories=(str(tmp_path / "link"),))
    (tmp_path / "link").symlink_to(allowed)
    assert loaded(linked, tmp_path / "link" / "totals.py") == "good"


def test_no_other_path_leads_to_a_program(admission: ProgramAdmission, allowed: Path, tmp_path: Path) -> None:
    (allowed / "link.py").symlink_to(tmp_path / "evil.py")
    (allowed / "outside").symlink_to(tmp_path)
    beside = tmp_path / "programs-of-others"
    beside.mkdir()
    (beside / "evil.py").write_text(EVIL)
    paths = [
        tmp_path / "evil.py",
        allowed / ".." / "evil.py",
        allowed / "link.py",
        allowed / "outside" / "evil.py",
        beside / "evil.py",
        Path("evil.py"),
        Path(os.path.relpath(allowed / "totals.py")),
    ]
    for path in paths:
        with pytest.raises(RunRefused, match=r"is not run: .* with --programs DIR") as caught:
            admission.admit(document(path))
        assert "\n" not in str(caught.value)


@given(
    steps=st.lists(
        st.sampled_from(["..", ".", "programs", "deep", "out", "in", "evil.py", "totals.py"]), max_size=8
    )
)
def test_whatever_a_path_is_made_of_what_runs_lies_in_an_allowed_directory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    ground = tmp_path_factory.mktemp("ground").resolve()
    (ground / "programs" / "deep").mkdir(parents=True)
    for directory, text in (
        (ground, EVIL),
        (ground / "programs", PROGRAM),
        (ground / "programs" / "deep", PROGRAM),
    ):
        (directory / "totals.py").write_text(text)
        (directory / "evil.py").write_text(text)
    (ground / "programs" / "out").symlink_to(ground)
    (ground / "in").symlink_to(ground / "programs" / "deep")
    admission = ProgramAdmission(state_directory=ground / "state", directories=(str(ground / "programs"),))
    try:
        assert loaded(admission, ground.joinpath(*steps)) == "good"
    except (RunRefused, WrongProgram):
        pass


def test_a_link_that_changes_after_the_check_leads_nowhere(
    admission: ProgramAdmission, allowed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link.py"
    link.symlink_to(allowed / "totals.py")
    places = admission.admit(document(link))

    def point_to(target: Path) -> None:
        link.unlink()
        link.symlink_to(target)

    point_to(tmp_path / "evil.py")
    with pytest.raises(WrongProgram, match="comes from no directory that this supervisor allows"):
        load_program(link, [], places)
    # Changed between the opening and the look at where the path leads:
    real_path = os.path.realpath

    def resolved(path: Path) -> str:
        point_to(allowed / "totals.py")
        return real_path(path)

    monkeypatch.setattr(program_file.os.path, "realpath", resolved)  # type: ignore[attr-defined]
    with pytest.raises(WrongProgram, match="it changed while it was opened"):
        load_program(link, [], places)


def test_what_is_checked_is_what_runs(
    admission: ProgramAdmission, allowed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file's place is taken by another after it was read."""
    program = allowed / "totals.py"
    places = admission.admit(document(program))
    check = ProgramSources.check_owners

    def changed(self: ProgramSources, real: str, about: os.stat_result) -> None:
        check(self, real, about)
        (allowed / "new.py").write_text(EVIL)
        os.replace(allowed / "new.py", program)

    monkeypatch.setattr(ProgramSources, "check_owners", changed)
    pipeline = load_program(program, [], places).pipeline
    assert pipeline is not None
    assert pipeline(None) == "good"


@pytest.mark.parametrize("which", ["file", "folder", "root"])
def test_a_program_that_every_user_can_change_does_not_run(
    admission: ProgramAdmission, allowed: Path, which: str
) -> None:
    folder = allowed / "team"
    folder.mkdir()
    program = folder / "totals.py"
    program.write_text(PROGRAM)
    assert loaded(admission, program) == "good"
    {"file": program, "folder": folder, "root": allowed}[which].chmod(0o777)
    with pytest.raises(WrongProgram, match=r"every user of this machine can change .*chmod o-w"):
        loaded(admission, program)


def test_a_pipe_is_no_program(admission: ProgramAdmission, allowed: Path) -> None:
    os.mkfifo(allowed / "pipe.py")
    with pytest.raises(WrongProgram, match="no such Python file"):
        loaded(admission, allowed / "pipe.py")


@pytest.mark.parametrize(
    "key",
    [
        *("spark.jars", "spark.jars.packages", "spark.jars.repositories", "spark.jars.ivySettings"),
        *("spark.submit.pyFiles", "spark.files", "spark.archives", "spark.plugins", "spark.extraListeners"),
        *(
            "spark.driver.extraJavaOptions",
            "spark.executor.extraJavaOptions",
            "spark.driver.defaultJavaOptions",
        ),
        *(
            "spark.executor.defaultJavaOptions",
            "spark.driver.extraClassPath",
            "spark.executor.extraClassPath",
        ),
        *(
            "spark.driver.extraLibraryPath",
            "spark.executor.extraLibraryPath",
            "spark.driver.userClassPathFirst",
        ),
        *(
            "spark.sql.extensions",
            "spark.sql.queryExecutionListeners",
            "spark.sql.catalog.x",
            "spark.serializer",
        ),
        *("spark.sql.streaming.streamingQueryListeners", "spark.sql.streaming.checkpointFileManagerClass"),
        *("spark.sql.streaming.stateStore.providerClass", "spark.sql.streaming.checkpointLocation"),
        *("spark.sql.warehouse.dir", "spark.sql.hive.metastore.jars", "spark.sql.hive.metastore.jars.path"),
        *("spark.sql.adaptive.customCostEvaluatorClass", "spark.sql.sources.commitProtocolClass"),
        *("spark.sql.parquet.output.committer.class", "spark.sql.execution.pyspark.python", "spark.master"),
        *(
            "spark.pyspark.python",
            "spark.pyspark.driver.python",
            "spark.executorEnv.PYTHONPATH",
            "spark.home",
        ),
        *("spark.kubernetes.driver.podTemplateFile", "spark.yarn.appMasterEnv.X", "spark.yarn.dist.files"),
        *(
            "spark.metrics.conf",
            "spark.metrics.conf.*.sink.x.class",
            "spark.metrics.namespace",
            "spark.local.dir",
        ),
        *(
            "spark.eventLog.dir",
            "spark.hadoop.fs.s3a.impl",
            "spark.hadoop.fs.s3a.endpoint",
            "spark.ui.filters",
        ),
        *("spark.shuffle.manager", "spark.shuffle.sort.io.plugin.class", "spark.io.compression.codec"),
        *(
            "spark.scheduler.allocation.file",
            "spark.ui.port",
            "spark.redaction.regex",
            "spark.submit.deployMode",
        ),
        *(
            "spark.dynamicAllocation.pluginClass",
            "SPARK.JARS",
            "spark.executor.memory ",
            "spark.executor.memory\n",
        ),
        *("spark.worker.resource.gpu.discoveryScript", "spark.driver.resource.gpu.discoveryScript", ""),
    ],
)
def test_a_setting_that_may_run_code_is_refused_unless_the_operator_allows_it(
    admission: ProgramAdmission, allowed: Path, key: str
) -> None:
    wanted = document(allowed / "totals.py", conf=((key, "x"),))
    with pytest.raises(RunRefused, match="it may run code, or read and write elsewhere") as caught:
        admission.admit(wanted)
    assert f"--allow-conf {safe_line(key)}," in str(caught.value)
    replace(admission, settings=(key,)).admit(wanted)
    replace(admission, settings=("*",)).admit(wanted)


def test_harmless_settings_are_not_refused(admission: ProgramAdmission, allowed: Path) -> None:
    keys = (
        *("spark.executor.memory", "spark.driver.memory", "spark.sql.shuffle.partitions", "spark.log.level"),
        *("spark.dynamicAllocation.maxExecutors", "spark.sql.adaptive.coalescePartitions.enabled"),
        *(
            "spark.sql.streaming.stateStore.rocksdb.maxOpenFiles",
            "spark.sql.execution.arrow.maxRecordsPerBatch",
        ),
    )
    admission.admit(document(allowed / "totals.py", conf=tuple((key, "2") for key in keys)))
    with pytest.raises(RunRefused, match=r"spark\.executor\.memory is not set"):
        admission.admit(
            document(allowed / "totals.py", conf=(("spark.executor.memory", "2g\nspark.jars=x"),))
        )


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "local[4,3]", None])
def test_a_local_master_is_not_refused(
    admission: ProgramAdmission, allowed: Path, master: str | None
) -> None:
    sources = admission.admit(document(allowed / "totals.py", master=master))
    assert str(allowed.resolve()) in sources.directories


@pytest.mark.parametrize(
    "master",
    [
        "spark://there:7077",
        "yarn",
        "k8s://https://there",
        "local-cluster[2,1,1024]",
        "local[*] --jars x",
        "localx",
    ],
)
def test_another_master_is_refused_unless_the_operator_allows_it(
    admission: ProgramAdmission, allowed: Path, master: str
) -> None:
    wanted = document(allowed / "totals.py", master=master)
    with pytest.raises(RunRefused, match="--allow-master"):
        admission.admit(wanted)
    replace(admission, masters=(master,)).admit(wanted)


@pytest.mark.parametrize(
    "place",
    [
        "../elsewhere/v1",
        "totals/../../v1",
        "/elsewhere/v1",
        "",
        "hdfs://there/v1",
        "file:///etc/v1",
        "link/v1",
    ],
)
def test_a_checkpoint_elsewhere_is_refused(
    admission: ProgramAdmission, allowed: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "link").symlink_to(tmp_path)
    with pytest.raises(RunRefused, match="--allow-checkpoints"):
        admission.admit(document(allowed / "totals.py", place))


def test_the_operator_allows_places_of_checkpoints(
    admission: ProgramAdmission, allowed: Path, tmp_path: Path
) -> None:
    wider = replace(admission, checkpoints=(str(tmp_path / "shared"), "s3a://bucket/checkpoints/"))
    for place in (str(tmp_path / "shared" / "totals" / "v1"), "s3a://bucket/checkpoints/totals/v2", "x/v1"):
        wider.admit(document(allowed / "totals.py", place))
    for place in (
        f"{tmp_path}/shared/../v1",
        "s3a://bucket/checkpoints/../v1",
        "s3a://bucket/checkpointsx/v1",
    ):
        with pytest.raises(RunRefused):
            wider.admit(document(allowed / "totals.py", place))


def test_what_its_user_ran_by_hand_runs_and_nothing_else(tmp_path: Path, allowed: Path) -> None:
    approvals = Approvals(tmp_path / "by-hand")
    admission = ProgramAdmission(state_directory=tmp_path / "state", approvals=approvals)
    program = tmp_path.resolve() / "mine.py"
    program.write_text(PROGRAM)
    wanted = PipelineDocument(
        name="mine",
        versions=(
            PipelineVersion(number=1, program=str(program), args=("--secret", "x"), checkpoint="/c/v1"),
        ),
        conf=(("spark.jars.packages", "delta"),),
        master="spark://mine:7077",
    )
    with pytest.raises(RunRefused):
        admission.admit(wanted)
    approvals.add(
        [
            Approval.of_program(str(program), ("--secret", "x")),
            Approval.of_setting("spark.jars.packages", "delta"),
            Approval.of_master("spark://mine:7077"),
            Approval.of_checkpoint("/c/v1"),
        ]
    )
    places = admission.admit(wanted)
    assert load_program(program, [], places).pipeline is not None
    later = replace(wanted.current, number=2, checkpoint="/c/v2")
    admission.admit(replace(wanted, versions=(wanted.current, later)))
    for changed in (
        replace(wanted, conf=(("spark.jars.packages", "evil"),)),
        replace(wanted, master="spark://theirs:7077"),
        replace(wanted, versions=(replace(wanted.current, args=("--secret", "y")),)),
        replace(wanted, versions=(replace(wanted.current, program=str(allowed / "totals.py")),)),
        replace(wanted, versions=(replace(wanted.current, checkpoint="/d/v1"),)),
    ):
        with pytest.raises(RunRefused):
            admission.admit(changed)
    assert "--secret" not in approvals.file.read_text()
    assert approvals.file.stat().st_mode & 0o077 == 0


def test_a_file_that_others_can_write_says_nothing_about_the_user(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path / "by-hand")
    assert approvals.digests() == frozenset()
    approvals.add([Approval.of_master("yarn")])
    approvals.add([Approval.of_master("yarn"), Approval.of_master("local\nx")])
    assert len(approvals.file.read_text().splitlines()) == len(approvals.digests()) == 2
    approvals.file.chmod(0o662)
    with pytest.raises(ConfigError, match="other users can write it"):
        approvals.digests()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"name":"totals"', '"name":"other"'),
        ('"program":"/p.py"', '"program":3'),
        ('"args":[]', '"args":[1]'),
        ('"args":[]', '"args":["a\\u0000b"]'),
        ('"conf":[]', '"conf":[["spark.x",1]]'),
        ('"master":null', '"master":["local"]'),
    ],
)
def test_a_document_of_other_types_is_unreadable(before: str, after: str) -> None:
    text = document("/p.py").to_bytes().decode()
    assert before in text
    with pytest.raises(Exception, match=r"the document of pipeline .totals. .* is unreadable"):
        PipelineDocument.from_bytes("totals", text.replace(before, after).encode())
