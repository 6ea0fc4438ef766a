"""Decides which documents' programs run. Write access to a topic must not be the right to run code as its user.

A document comes from a topic. So a program is run only from directories that the operator names, or if the supervisor's own
user ran it by hand on this machine. The same goes for settings of Spark, masters and places of checkpoints:
harmless ones are allowed, and the operator or the user's own hand allows others.

What a user runs by hand, `odradek pipeline run` and `upgrade` write down in a file of the user's: as digests, since arguments
and settings may be secret. A document that asks for just that is the user's own.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from odradek.config.data_directory import default_data_directory
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.safe_text import safe_line
from odradek.pipelines.document import PipelineDocument
from odradek.pipelines.program_file import ProgramSources, is_within

_LOCAL_MASTER: Final = re.compile(r"local(\[(\*|[0-9]{1,4})(,[0-9]{1,4})?\])?")
_NUMBERED: Final = re.compile(r"/v[0-9]+$")
_BYTES_MAX: Final = 1 << 20
_NAMES_CODE: Final = re.compile(
    r"(?i)(class(es|name)?|jars?|path|dir|directory|ur[il]|command|python|plugins?|listeners?|extensions?"
    r"|factory|provider|serializer|codec|manager|generator|evaluator|location|file)$"
)
"""The ends of keys that name code or a place. A prefix of ours does not allow them."""
ALLOWED_SETTINGS: Final = (
    *("spark.cores.max", "spark.default.parallelism", "spark.log.level", "spark.scheduler.mode"),
    *(
        "spark.driver.cores",
        "spark.driver.maxResultSize",
        "spark.driver.memory",
        "spark.driver.memoryOverhead",
    ),
    *("spark.executor.cores", "spark.executor.instances", "spark.executor.memory"),
    *("spark.executor.memoryOverhead", "spark.executor.pyspark.memory", "spark.executor.heartbeatInterval"),
    *("spark.dynamicAllocation.*", "spark.locality.wait*", "spark.speculation*", "spark.reducer.*"),
    *("spark.memory.fraction", "spark.memory.storageFraction", "spark.memory.offHeap.*"),
    *("spark.network.timeout", "spark.rpc.askTimeout", "spark.rpc.message.maxSize"),
    *("spark.python.worker.memory", "spark.python.worker.reuse"),
    *("spark.shuffle.compress", "spark.shuffle.file.buffer", "spark.shuffle.spill.compress"),
    *("spark.task.cpus", "spark.task.maxFailures"),
    *("spark.sql.adaptive.*", "spark.sql.ansi.enabled", "spark.sql.autoBroadcastJoinThreshold"),
    *("spark.sql.broadcastTimeout", "spark.sql.caseSensitive", "spark.sql.codegen.wholeStage"),
    *("spark.sql.debug.maxToStringFields", "spark.sql.execution.arrow.*", "spark.sql.files.*"),
    *("spark.sql.parquet.compression.codec", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions"),
    *("spark.sql.sources.partitionOverwriteMode", "spark.sql.streaming.metricsEnabled"),
    *("spark.sql.streaming.minBatchesToRetain", "spark.sql.streaming.multipleWatermarkPolicy"),
    *("spark.sql.streaming.noDataMicroBatches.enabled", "spark.sql.streaming.numRecentProgressUpdates"),
    *("spark.sql.streaming.queryEvolution.*", "spark.sql.streaming.sessionWindow.*"),
    *("spark.sql.streaming.stateStore.rocksdb.*", "spark.sql.streaming.stateStore.minDeltasForSnapshot"),
    *("spark.sql.streaming.stateStore.maintenanceInterval", "spark.sql.streaming.statefulOperator.*"),
    "spark.sql.streaming.stopTimeout",
)
"""Settings that any document may have: amounts, counts and durations. `*` at the end means any rest."""


class RunRefused(OdradekError):
    """The supervisor does not run what the document asks for. Its text is one line, whatever the document holds."""

    def __init__(self, text: str) -> None:
        super().__init__(safe_line(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A part of a document that the user gave."""

    digest: str
    shown: str
    """The readable form in the file."""

    @classmethod
    def of_program(cls, file: str, args: Sequence[str]) -> Self:
        return cls._of(("program", file, *args), f"program {file}")

    @classmethod
    def of_setting(cls, key: str, value: str) -> Self:
        return cls._of(("conf", key, value), f"conf {key}")

    @classmethod
    def of_master(cls, master: str) -> Self:
        return cls._of(("master", master), "master")

    @classmethod
    def of_checkpoint(cls, uri: str) -> Self:
        """Approves a place for checkpoints, without the version's number: all versions' checkpoints share a directory."""
        return cls._of(("checkpoint", _NUMBERED.sub("", uri)), "checkpoint")

    @classmethod
    def _of(cls, words: Sequence[str], shown: str) -> Self:
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()
        return cls(digest=digest, shown=json.dumps(shown)[1:-1])


class Approvals:
    """A file of the user's: a line for each approval."""

    def __init__(self, file: Path | None = None) -> None:
        self.file: Final = file or Path(default_data_directory()) / "pipelines" / "run-by-hand"

    def add(self, approvals: Iterable[Approval]) -> None:
        """Adds an approval. OSError when the file cannot be written; ConfigError when others can write it."""
        known = self.digests()
        lines = [
            f"{approval.digest} {approval.shown}\n" for approval in approvals if approval.digest not in known
        ]
        if not lines:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.file, flags, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write("".join(lines))

    def digests(self) -> frozenset[str]:
        """Returns what was approved so far. ConfigError when others can write the file: then it proves nothing."""
        try:
            descriptor = os.open(self.file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return frozenset()
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be read: {error.strerror}") from None
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
                raise ConfigError(
                    f"{self.file} is not used, since other users can write it: remove it, and run your pipelines again"
                )
            content = file.read(_BYTES_MAX)
        return frozenset(line.split(b" ", 1)[0].decode("ascii", "replace") for line in content.splitlines())


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramAdmission:
    """Holds what the operator allows documents to ask for, in addition to what is always allowed."""

    state_directory: Path
    directories: tuple[str, ...] = ()
    """Programs come from these directories, and from below them."""
    settings: tuple[str, ...] = ()
    """Keys of Spark; with `*` at its end, a prefix."""
    masters: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    """Checkpoints may be below these directories and URLs, too."""
    approvals: Approvals | None = None
    """The runs that the supervisor's own user started by hand."""

    def admit(self, document: PipelineDocument) -> ProgramSources:
        """Returns where the program may be when it is opened. RunRefused names what is not allowed, and who can allow it."""
        version = document.current
        by_hand = self._by_hand()
        sources = ProgramSources(
            directories=tuple(map(os.path.realpath, self.directories)),
            files=(version.program,) if by_hand(Approval.of_program(version.program, version.args)) else (),
        )
        real = os.path.realpath(version.program)
        if not os.path.isabs(version.program) or not sources.cover(real):
            raise RunRefused(
                f"program {version.program} is not run: it comes from no directory that this supervisor runs programs"
                f" from ({', '.join(sources.directories) or 'none is named'}), and its user did not run it with these"
                " arguments by hand; start `odradek pipelines serve` with --programs DIR"
            )
        master = document.master
        if master is not None and not self._allows_master(master) and not by_hand(Approval.of_master(master)):
            raise RunRefused(
                f"master {master} is not used: start `odradek pipelines serve` with --allow-master {master}"
            )
        for key, value in document.conf:
            if not self._allows_setting(key, value) and not by_hand(Approval.of_setting(key, value)):
                raise RunRefused(
                    f"Spark's setting {key} is not set: it may run code, or read and write elsewhere;"
                    f" start `odradek pipelines serve` with --allow-conf {key}, or remove it from the pipeline"
                )
        checkpoint = version.checkpoint
        if not self._allows_checkpoint(checkpoint) and not by_hand(Approval.of_checkpoint(checkpoint)):
            raise RunRefused(
                f"checkpoint {checkpoint} is not used: it is not below {self.state_directory};"
                " start `odradek pipelines serve` with --allow-checkpoints PLACE"
            )
        return sources

    def _by_hand(self) -> Callable[[Approval], bool]:
        approved = frozenset[str]() if self.approvals is None else self.approvals.digests()
        return lambda approval: approval.digest in approved

    def _allows_master(self, master: str) -> bool:
        return _LOCAL_MASTER.fullmatch(master) is not None or master in self.masters

    def _allows_setting(self, key: str, value: str) -> bool:
        if not value.isprintable():
            return False  # a line break may begin another setting
        if _matches(key, self.settings):
            return True
        return key in ALLOWED_SETTINGS or (
            _matches(key, ALLOWED_SETTINGS) and _NAMES_CODE.search(key) is None
        )

    def _allows_checkpoint(self, uri: str) -> bool:
        if "://" in uri:
            return ".." not in re.split(r"[/\\%?#]", uri) and any(
                uri.startswith(f"{allowed.rstrip('/')}/") for allowed in self.checkpoints
            )
        if not uri or "\0" in uri:
            return False
        roots = [str(self.state_directory), *(uri for uri in self.checkpoints if "://" not in uri)]
        real = os.path.realpath(self.state_directory / uri)
        return any(is_within(real, os.path.realpath(root)) for root in roots)


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(
        key.startswith(pattern[:-1]) if pattern.endswith("*") else key == pattern for pattern in patterns
    )
