"""The demo's kill: a life of the pipeline's process is followed, ended with -9, and missed when it ends by itself."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from tests.unit.spark.test_flights_check import DEMO

EVENTS = '{"event": "started", "jvm": 0}\n{"event": "batch", "number": 0, "rows": 5}\n'


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DEMO))
    sys.modules.pop("killable_pipeline", None)
    import killable_pipeline

    return killable_pipeline


def program(directory: Path, text: str) -> Path:
    path = directory / "program.py"
    path.write_text("import sys, time\n" + textwrap.dedent(text))
    return path


def test_it_is_killed_in_the_middle_and_leaves_no_process(killable: ModuleType, tmp_path: Path) -> None:
    text = f"print('noise'); sys.stdout.write({EVENTS!r}); sys.stdout.flush(); time.sleep(60)"
    with killable.KillablePipeline("h:1", tmp_path, program(tmp_path, text)) as pipeline:
        events = pipeline.events()
        assert [next(events)["event"], next(events)["rows"]] == ["started", 5]
        (pid,) = pipeline.kill()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_life_ends_with_its_last_event(killable: ModuleType, tmp_path: Path) -> None:
    text = f'sys.stdout.write({EVENTS!r}); print(\'{{"event": "read back"}}\')'
    with killable.KillablePipeline("h:1", tmp_path, program(tmp_path, text)) as pipeline:
        assert [event["event"] for event in pipeline.events()] == ["started", "batch", "read back"]
        pipeline.wait()


def test_a_program_that_fails_is_reported_with_its_last_words(killable: ModuleType, tmp_path: Path) -> None:
    text = f"sys.stdout.write({EVENTS!r}); sys.exit('there is no topic flights')"
    with (
        pytest.raises(killable.PipelineFailedError, match="before it was done: there is no topic flights"),
        killable.KillablePipeline("h:1", tmp_path, program(tmp_path, text)) as pipeline,
    ):
        list(pipeline.events())


def test_the_error_is_reported_and_not_what_spark_says_after_it(killable: ModuleType, tmp_path: Path) -> None:
    said = (
        "26/11/24 WARN Task: slow\n"
        "pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 7] terminated with"
        " exception: Python worker failed to connect back. SQLSTATE: XXKST\n"
        "=== Streaming Query ===\nCurrent State: INITIALIZING\nThread State: RUNNABLE\n"
    )
    with (
        pytest.raises(
            killable.PipelineFailedError, match=r"before it was done: pyspark.* failed to connect back"
        ),
        killable.KillablePipeline("h:1", tmp_path, program(tmp_path, f"sys.exit({said!r})")) as pipeline,
    ):
        list(pipeline.events())


def test_an_error_of_the_demo_ends_the_program(killable: ModuleType, tmp_path: Path) -> None:
    text = f"sys.stdout.write({EVENTS!r}); sys.stdout.flush(); time.sleep(60)"
    pids = []

    def follow() -> None:
        with killable.KillablePipeline("h:1", tmp_path, program(tmp_path, text)) as pipeline:
            pids.append(pipeline.process.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
