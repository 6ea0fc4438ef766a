"""A million generated frames (`generated.py`), over a handful of connections at a time."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import Final

from tests.hostile.attack import Attack, Stage, known_to
from tests.hostile.figures import MEBIBYTE
from tests.hostile.generated import Fault, Generator, connect, play

_LANES: Final = 6
_ANSWER_SECONDS: Final = 20.0
_READ_EVERY: Final = 20
_TOLD_MAX: Final = 5
_CLUSTER_BATCH: Final = 1 << 24


class Barrage:
    """Batches from a first number on, in several threads, until so many frames are sent or the time is over."""

    def __init__(self, stage: Stage, frame_count: int, first_batch: int = 0) -> None:
        self.faults: list[Fault] = []
        self.sent_count = 0
        self.fates: Counter[str] = Counter()
        self._stage = stage
        self._frame_count = frame_count
        self._numbers = itertools.count(first_batch)
        self._generator = Generator(stage.scale.seed, known_to(stage.connect()))
        self._deadline = time.monotonic() + stage.scale.frame_seconds
        self._lock = threading.Lock()

    def run(self) -> None:
        threads = [threading.Thread(target=self._lane, daemon=True) for _ in range(_LANES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    @property
    def _is_over(self) -> bool:
        return (
            self.sent_count >= self._frame_count
            or time.monotonic() > self._deadline
            or len(self.faults) >= _TOLD_MAX * 4
            or not self._stage.victim.is_alive
        )

    def _lane(self) -> None:
        addresses = [(host, port) for host, port in self._stage.addresses]
        while not self._is_over:
            with self._lock:
                number = next(self._numbers)
            batch = self._generator.batch(number)
            try:
                with connect(addresses[number % len(addresses)], _ANSWER_SECONDS) as peer:
                    faults = list(play(peer, batch, reads_answers=number % _READ_EVERY == 0))
            except OSError as error:  # it hung up before it had read all
                faults = [] if isinstance(error, ConnectionError) else [Fault(batch=number, what=repr(error))]
            with self._lock:
                self.faults += faults
                self.sent_count += len(batch.frames)
                self.fates.update(frame.fate.value for frame in batch.frames)


def _attack(stage: Stage) -> None:
    """Two thirds of the frames are for a lone broker, the others, which are different ones, for a cluster."""
    is_cluster = len(stage.fleet.brokers) > 1
    wanted = max(stage.scale.frame_count * (1 if is_cluster else 2) // 3, 1)
    first = stage.scale.first_batch or (_CLUSTER_BATCH if is_cluster else 0)
    barrage = Barrage(stage, wanted, first)
    barrage.run()
    stage.notes["frames"] = f"{barrage.sent_count:,}"
    stage.notes["fates"] = dict(barrage.fates)
    for fault in barrage.faults[:_TOLD_MAX]:
        stage.must(
            False,
            f"{fault.what} (again: --only frames --brokers {len(stage.fleet.brokers)} --seed {stage.scale.seed}"
            f" --batch {fault.batch} --frames 1)",
        )
    stage.must(len(barrage.faults) <= _TOLD_MAX, f"{len(barrage.faults)} such faults")
    if barrage.sent_count < wanted:
        stage.notes["cut_short"] = f"{wanted:,} frames were wanted"


ATTACKS: Final = (
    Attack(
        name="generated frames",
        brokers_in_short=(1,),
        claim="whatever a frame is, it is answered or its sender is dropped, and nothing else happens",
        run=_attack,
        brokers=(1, 3),
        log_bytes_max=16 * MEBIBYTE,
    ),
)
