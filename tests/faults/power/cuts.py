"""A cluster whose disks are images, the ways in which its power can be cut, and brokers started on what was left."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.faults.power.images import Image, copy, copy_at_one_instant, keep_images, mounted_copies
from tests.faults.power.reading_back import Finding, compare
from tests.faults.power.witnesses import Testimony, Witnesses
from tests.kit.cluster import cluster, kill_all

from odradek.model.errors import OdradekError

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
REGISTRY: Final = "registry"
_MIXED_PAUSE_SECONDS: Final = 0.05
SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "broker.session.timeout.ms": "3000",
    "replica.lag.time.max.ms": "3000",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What was left by a power cut, and what had been acknowledged before it."""

    kind: str
    directory: Path
    testimony: Testimony
    images: tuple[str, ...]


class PoweredCluster:
    """Three brokers, each on an image; the registry on one too, or (`registry_survives`) where nothing is ever lost."""

    def __init__(self, directory: Path, settings: Mapping[str, str], *, registry_survives: bool) -> None:
        self.directory = directory
        self._names = BROKERS if registry_survives else (*BROKERS, REGISTRY)
        self._images = [Image(directory / f"{name}.img", directory / name) for name in self._names]
        self._settings = {**SETTINGS, **settings}
        self._registry_survives = registry_survives
        self._cut_count = 0
        self.fleet = cluster(directory, self._settings, in_sync=2)

    @contextmanager
    def running(self) -> Iterator[PoweredCluster]:
        with ExitStack() as stack:
            for image in self._images:
                image.make()
                stack.enter_context(image.mounted())
            stack.callback(kill_all, self.fleet)
            self.fleet.start()
            yield self

    # -- cuts

    def cut_together(self, witnesses: Witnesses) -> Cut | None:
        """All disks at one instant, while all brokers are frozen. None if the kernel was not quiet."""
        target = self._target()
        for broker in self.fleet.brokers:
            broker.pause()
        try:
            testimony = witnesses.testimony()
            if not copy_at_one_instant(self._images, target):
                return None
            self._copy_registry(target)
        finally:
            for broker in self.fleet.brokers:
                broker.resume()
        return Cut(kind="together", directory=target, testimony=testimony, images=self._names)

    def cut_one_after_another(self, witnesses: Witnesses, rng: random.Random) -> Cut:
        """The brokers lose power in any order, at different moments, in the midst of writing; the registry last of all.

        Whose disk was copied is silent until all were: what a broker did after its power cut must not be in the registry.
        """
        target = self._target()
        testimony = witnesses.testimony()
        try:
            for number in rng.sample(range(len(BROKERS)), len(BROKERS)):
                self.fleet.brokers[number].pause()
                copy(self._images[number], target)
                time.sleep(rng.uniform(0.0, _MIXED_PAUSE_SECONDS))
            for image in self._images[len(BROKERS) :]:
                copy(image, target)
            self._copy_registry(target)
        finally:
            for broker in self.fleet.brokers:
                broker.resume()
        return Cut(kind="one after another", directory=target, testimony=testimony, images=self._names)

    def cut_one(self, rng: random.Random) -> bool:
        """One broker loses power, and comes back on what its disk holds; the others go on. False like `cut_together`'s None."""
        number = rng.randrange(len(BROKERS))
        broker, image = self.fleet.brokers[number], self._images[number]
        target = self._target()
        broker.pause()
        quiet = copy_at_one_instant([image], target)
        if not quiet:
            broker.resume()
            return False
        broker.kill()
        image.replace_by(target / image.file.name)
        shutil.rmtree(target)
        time.sleep(rng.choice((0.0, 0.0, 0.5)))
        broker.start()
        broker.wait_until_ready()
        return True

    def _target(self) -> Path:
        self._cut_count += 1
        target = self.directory / f"cut-{self._cut_count}"
        target.mkdir()
        return target

    def _copy_registry(self, target: Path) -> None:
        """Copies the registry's files as they are, if it survives the cut: its journal only grows."""
        if self._registry_survives:
            shutil.copytree(self.directory / REGISTRY, target / REGISTRY)

    # -- afterwards

    def examine(self, cut: Cut, keep: Path | None) -> Finding:
        """Start brokers on what a cut left, and compare. Nothing of it remains, but below `keep` where something is wrong: the
        images as the cut left them, and all that was said, by brokers before and after it and by us.
        """
        untouched = cut.directory / "untouched"
        try:
            if keep is not None:
                keep_images(cut.directory, cut.images, untouched)
            with mounted_copies(cut.directory, cut.images):
                finding = self._compare(cut)
            if keep is not None and not finding.is_clean:
                self._keep(cut, finding, untouched, keep / f"{self.directory.name}-{cut.directory.name}")
            return finding
        finally:
            shutil.rmtree(cut.directory)

    def _keep(self, cut: Cut, finding: Finding, untouched: Path, place: Path) -> None:
        keep_images(untouched, cut.images, place)
        for log in cut.directory.glob("broker-*.log"):
            shutil.copy(log, place / f"after-{log.name}")
        for log in self.directory.glob("broker-*.log"):
            shutil.copy(log, place / f"before-{log.name}")
        if self._registry_survives:
            shutil.copytree(cut.directory / REGISTRY, place / f"after-{REGISTRY}")
        (place / "found.json").write_text(json.dumps(finding.everything(), indent=1))
        (place / "acknowledged.json").write_text(json.dumps(cut.testimony.as_json()))

    def _compare(self, cut: Cut) -> Finding:
        fleet = cluster(cut.directory, self._settings, in_sync=2)
        try:
            fleet.start()
            return compare(fleet.bootstrap, cut.testimony)
        except OdradekError as error:
            return Finding(unusable=[str(error)])
        finally:
            kill_all(fleet)
