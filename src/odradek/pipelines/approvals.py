"""What a user ran by hand on this machine. A supervisor of the same user runs that without being asked.

`odradek pipeline run` and `upgrade` write it down in a file of the user's, and a document that asks for just that is the user's
own. The file holds digests, since arguments and settings may be secret.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from odradek.config.data_directory import default_data_directory
from odradek.model.errors import ConfigError

_NUMBERED: Final = re.compile(r"/v[0-9]+$")
_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A part of a document that the user gave."""

    digest: str
    shown: str
    """What people see in the file."""

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
    def of_checkpoint(cls, place: str) -> Self:
        """All versions of a pipeline have checkpoints beside each other, so their numbers do not count."""
        return cls._of(("checkpoint", _NUMBERED.sub("", place)), "checkpoint")

    @classmethod
    def _of(cls, words: Sequence[str], shown: str) -> Self:
        digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()
        return cls(digest=digest, shown=json.dumps(shown)[1:-1])


class Approvals:
    """A file of the user's: a line for each approval."""

    def __init__(self, file: Path | None = None) -> None:
        self.file: Final = file or Path(default_data_directory()) / "pipelines" / "run-by-hand"

    def add(self, approvals: Iterable[Approval]) -> None:
        """OSError when the file cannot be written; ConfigError when others can write it."""
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
        """What was approved so far. ConfigError when others can write the file: then it says nothing about the user."""
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
