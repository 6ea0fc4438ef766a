"""What the tests' own Spark programs do when Spark gives up on a worker."""

import pytest
from tests.spark.programs.own_program import LATE_WORKER, TRIES, last_lines, run_patiently

errors = pytest.importorskip("pyspark.errors", reason="PySpark is absent")


@pytest.mark.parametrize(
    ("late_times", "reason", "runs"),
    [(0, LATE_WORKER, 1), (1, LATE_WORKER, 2), (TRIES, LATE_WORKER, TRIES), (TRIES, "out of disk", 1)],
)
def test_a_query_is_started_again_for_a_late_worker_only_and_not_for_ever(
    late_times: int, reason: str, runs: int
) -> None:
    done = []

    def run() -> None:
        done.append(None)
        if len(done) <= late_times:
            raise errors.StreamingQueryException(f"terminated with exception: {reason}. SQLSTATE: XXKST")

    if runs > late_times:
        run_patiently(run)
    else:
        with pytest.raises(errors.StreamingQueryException, match=reason):
            run_patiently(run)
    assert len(done) == runs


def test_the_last_lines_have_the_error_and_not_the_java_before_it() -> None:
    said = (
        "WARNING: modules\nTraceback\n" + "\tat org.apache.spark.Task.run\n" * 500 + "OSError: [Errno 28]\n"
    )
    assert last_lines(said) == "WARNING: modules\nTraceback\nOSError: [Errno 28]"
