"""The lines of the journal, and the state that they add up to.

A line is a CRC-32 in hex, a space, a JSON list, a newline; it is one commit. An entry of the list is a node
as it is from now on (`path`, `data`, `version`, `created`, `owner`), a deleted node (`path` alone), a session
that began (`session`) or ended (`ended`). The first line of a journal that was rewritten is different: it
holds the whole state, the number of the rewriting (`generation`) and the count of commits so far. Journals
older than sessions lack `created`: it follows from the count.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NotRequired, TypedDict

from odradek.registry.port import Node, RegistryError
from odradek.registry.tree import Change, Tree

_CRC_LENGTH: Final = len(b"00000000 ")


class _StoredNode(TypedDict):
    """The JSON of a node in an entry. Before there was `created`, the number of a node's creation was not written."""

    path: str
    data: str
    version: int
    created: NotRequired[int]
    owner: NotRequired[int]


class JournalState:
    """The state of a journal up to a position in it."""

    __slots__ = ("generation", "sessions", "tree")

    def __init__(self) -> None:
        self.tree = Tree()
        self.sessions: dict[int, None] = {}
        """Sessions that own or owned ephemeral nodes and have not ended."""
        self.generation = 0

    def apply(self, body: bytes) -> list[str]:
        """Applies the commit of a line; returns the paths it touched."""
        changes: list[Change] = []
        for entry in json.loads(body):
            if "path" in entry:
                changes.append((entry["path"], self._node(entry) if "data" in entry else None))
            elif "session" in entry:
                self.sessions[entry["session"]] = None
            elif "ended" in entry:
                self.sessions.pop(entry["ended"], None)
            elif "generation" in entry:
                self.generation = entry["generation"]
                self.tree.commits = entry["commits"] - 1
        return self.tree.apply(changes)

    def _node(self, entry: _StoredNode) -> Node:
        created = entry.get("created")
        if created is None:
            present = self.tree.nodes.get(entry["path"])
            is_new = present is None or entry["version"] == 0
            created = self.tree.commits + 1 if present is None or is_new else present.created
        return Node(
            data=base64.b64decode(entry["data"]),
            version=entry["version"],
            created=created,
            owner=entry.get("owner", 0),
        )

    def snapshot(self, generation: int) -> bytes:
        """Returns a journal of one line that contains the whole state."""
        header = {"generation": generation, "commits": self.tree.commits}
        sessions = [{"session": session} for session in self.sessions]
        return _line([header, *sessions, *map(_entry, sorted(self.tree.nodes.items()))])


def line_of(changes: Iterable[Change], *, begun: Sequence[int] = (), ended: Sequence[int] = ()) -> bytes:
    return _line(
        [
            *({"session": session} for session in begun),
            *map(_entry, changes),
            *({"ended": session} for session in ended),
        ]
    )


def _entry(change: Change) -> dict[str, object]:
    path, node = change
    if node is None:
        return {"path": path}
    data = base64.b64encode(node.data).decode("ascii")
    entry = {"path": path, "data": data, "version": node.version, "created": node.created}
    return {**entry, "owner": node.owner} if node.owner else entry


def _line(entries: Sequence[Mapping[str, object]]) -> bytes:
    body = json.dumps(entries, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def lines_of(content: bytes, path: str, *, position: int = 0) -> tuple[list[bytes], int]:
    """Returns (bodies, their length with everything around them) of the lines in `content`, up to one that is torn.

    `content` is at `position` of the journal. A torn line is the last one: anything else that does not read is damage, and
    guessing at the state of a cluster loses topics.
    """
    bodies: list[bytes] = []
    done = 0
    while done < len(content):
        end = content.find(b"\n", done)
        crc, _, body = content[done : end if end >= 0 else len(content)].partition(b" ")
        if end < 0 or crc != b"%08x" % zlib.crc32(body):
            if 0 <= end < len(content.rstrip(b"\0")) - 1:
                raise RegistryError(
                    f"{path} is damaged at byte {position + done}: its topics cannot be trusted. "
                    "Restore the file from a backup"
                )
            break
        bodies.append(body)
        done = end + 1
    return bodies, done


def body_of(line: bytes) -> bytes:
    return line[_CRC_LENGTH:-1]
