"""Orders of one query in their order, those of several side by side."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from odradek.sql.queries.lanes import Lanes

PATIENCE_S = 30
NAMES = st.sets(st.sampled_from("abcd"), min_size=1, max_size=2)


@given(jobs=st.lists(st.tuples(NAMES, st.booleans()), max_size=40))
def test_jobs_of_one_name_run_in_their_order_and_none_is_left_behind(
    jobs: list[tuple[set[str], bool]],
) -> None:
    lanes, begun, ended = Lanes(), list[int](), list[int]()
    lock = threading.Lock()
    with ThreadPoolExecutor(3) as first, ThreadPoolExecutor(2) as second:
        done = threading.Semaphore(0)

        def job(number: int, *, fails: bool) -> None:
            with lock:
                begun.append(number)
            with lock:
                ended.append(number)
            done.release()
            if fails:
                raise ValueError(number)

        for number, (names, fails) in enumerate(jobs):
            pool = first if number % 2 else second
            lanes.add(names, partial(job, number, fails=fails), pool)
        for _ in jobs:
            assert done.acquire(timeout=PATIENCE_S)
    for later, (names, _) in enumerate(jobs):
        for earlier in range(later):
            if names & jobs[earlier][0]:
                assert begun.index(earlier) < begun.index(later)
                assert ended.index(earlier) < ended.index(later)
    assert len(lanes) == 0


def test_a_job_that_waits_is_in_the_way_of_its_own_name_alone() -> None:
    lanes, may_end, other, behind = Lanes(), threading.Event(), threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        lanes.add(["slow"], lambda: assert_set(may_end), pool)
        lanes.add(["slow", "x"], behind.set, pool)
        lanes.add(["y"], other.set, pool)
        assert other.wait(PATIENCE_S)
        assert not behind.is_set()
        may_end.set()
        assert behind.wait(PATIENCE_S)


def assert_set(event: threading.Event) -> None:
    assert event.wait(PATIENCE_S)
