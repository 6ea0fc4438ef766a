"""The note `lacks-records` in a partition's directory: the log has not all that it had. A file of ours.

It is durable before an empty log takes the place of a lost log. So a crash right afterwards does not make the empty log
look like a whole one while the cluster still counts on it.

The note has two states. While the cluster counts on the replica (it is in the ISR, or eligible), it must not
lead. When the cluster does not, the note only means that other replicas are better. It goes when the replica
is in sync again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from odradek.runtime.ports import Disk
from odradek.storage.files import naming
from odradek.storage.files.checkpoints import BadCheckpointError, sealed, unsealed

_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LackNote:
    """The reason why the log lacks records, in one line, and whether the cluster counted on it at the last check."""

    reason: str
    is_counted_on: bool = True


def read_note(disk: Disk, directory: str) -> LackNote | None:
    """Returns None when there is none. A damaged note means only that records are lacking."""
    path = naming.join(directory, naming.LACK_NOTE)
    if not disk.exists(path):
        return None
    try:
        values = unsealed(disk.read(path))
        return LackNote(reason=values["reason"], is_counted_on=values["counted"] == "true")
    except (BadCheckpointError, KeyError):
        return LackNote(reason="its note about what it lacks is damaged")


def write_note(disk: Disk, directory: str, note: LackNote) -> None:
    """Writes the note durably. Makes a missing directory, which is never seen without the note."""
    counted = "true" if note.is_counted_on else "false"
    content = sealed({"version": _VERSION, "reason": note.reason, "counted": counted})
    if disk.exists(directory):
        disk.replace(naming.join(directory, naming.LACK_NOTE), content)
        return
    temporary = directory + naming.TEMPORARY
    disk.make_directory(temporary)
    disk.replace(naming.join(temporary, naming.LACK_NOTE), content)
    disk.rename(temporary, directory)
    disk.sync_directory(naming.parent(directory))


def remove_note(disk: Disk, directory: str) -> None:
    """Removes the note durably."""
    path = naming.join(directory, naming.LACK_NOTE)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
