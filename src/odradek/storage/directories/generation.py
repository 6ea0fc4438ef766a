"""The generation of a data directory's content: a file of ours in it, `generation`.

Every start of a broker raises the generation, and so does a checkpoint now and then while records come in. The cluster's
registry knows the generation, too. So a disk whose generation is not the registry's is an older copy: a backup that was
restored, or the disk of a cloned machine.

The file names the generation that the registry has, and the next one, which the registry gets afterwards. So a crash in between
is not taken for a copy: whichever of the two the registry has, the disk is the newest.

It also names the start of the machine that it was written after. If that is another one now, and the broker
had not stopped cleanly, the content of the machine's memory is lost: records that need not be on the disk to
be acknowledged (decision 0039).
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.model.java_numbers import whole_number
from odradek.storage.files.checkpoints import BadCheckpointError, sealed, unsealed

_VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskGeneration:
    """The generation of a data directory, as its file has it. `number` belongs to `token`; the next one is higher by one."""

    number: int
    token: str
    next_token: str
    boot_id: str = ""
    """The boot id of the machine; empty where it is unknown."""

    def is_current(self, number: int, token: str) -> bool:
        """Returns whether the registry, which has this generation, knows of no disk that is newer than this one."""
        is_known = token in (self.token, self.next_token)
        return is_known or number < self.number  # then the registry itself went back


def format_generation(generation: DiskGeneration) -> bytes:
    return sealed(
        {
            "version": _VERSION,
            "number": str(generation.number),
            "token": generation.token,
            "next": generation.next_token,
            "boot": generation.boot_id,
        }
    )


def parse_generation(data: bytes) -> DiskGeneration:
    """Raises BadCheckpointError."""
    values = unsealed(data)
    try:
        return DiskGeneration(
            number=whole_number(values["number"]),
            token=values["token"],
            next_token=values["next"],
            boot_id=values.get("boot", ""),  # older versions did not write it
        )
    except (KeyError, ValueError) as error:
        raise BadCheckpointError(f"it does not follow its format: {error}") from None
