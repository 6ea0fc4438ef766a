"""The registry of a single machine: a journal file in the data directory.

One line a commit: a CRC-32 in hex, a space, a JSON list of operations, a newline. A commit is durable before it is applied
in memory. Opening replays the journal; a torn last line (a crash in mid-write, never acknowledged) is cut off, anything
else that does not read is refused, because guessing at cluster state loses topics. Opening also rewrites a journal that
holds much more history than state.
"""

from __future__ import annotations

import asyncio
import base64
import json
import posixpath
import zlib
from collections.abc import Sequence
from typing import Any, Final

from odradek.registry.port import Check, Create, Delete, Node, Operation, Put, RegistryConflict, RegistryError
from odradek.runtime.ports import DiskFile, Runtime
from odradek.telemetry import events

_log = events.get("registry")
JOURNAL_NAME: Final = "registry.journal"
_SLACK_BYTES: Final = 64 * 1024


class EmbeddedRegistry:
    """See the module's text. Use `EmbeddedRegistry.open`; one process owns the directory (the broker holds its lock)."""

    def __init__(
        self, runtime: Runtime, path: str, file: DiskFile, nodes: dict[str, Node], length: int
    ) -> None:
        self._runtime = runtime
        self._path = path
        self._file = file
        self._nodes = nodes
        self._length = length
        self._writing = asyncio.Lock()
        self._tail_unknown = False
        """A write failed, and what it left behind `_length` was not cut off yet."""
        self._closed = False

    @classmethod
    def open(cls, runtime: Runtime, directory: str) -> EmbeddedRegistry:
        """Read the journal in `directory`, or start one. Raises `RegistryError` when it is damaged or cannot be used."""
        path = posixpath.join(directory, JOURNAL_NAME)
        try:
            return cls._open(runtime, directory, path)
        except OSError as error:
            raise RegistryError(f"cannot open {path}: {error.strerror or error}") from error

    @classmethod
    def _open(cls, runtime: Runtime, directory: str, path: str) -> EmbeddedRegistry:
        disk = runtime.disk
        content = disk.read(path) if disk.exists(path) else b""
        nodes, good_length = _replay(content, path)
        if len(content) > _SLACK_BYTES and len(snapshot := _snapshot(nodes)) < len(content) // 2:
            disk.replace(path, snapshot)
            good_length = len(snapshot)
        file = disk.open(path, create=True)
        try:
            if good_length < file.length():
                _log.warning("registry_tail_cut", path=path, bytes=file.length() - good_length)
                file.truncate(good_length)
            file.sync()
            disk.sync_directory(directory)
        except OSError:
            file.close()
            raise
        return cls(runtime, path, file, nodes, good_length)

    async def get(self, path: str) -> Node | None:
        return self._nodes.get(path)

    async def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            {name[len(prefix) :].split("/", 1)[0] for name in self._nodes if name.startswith(prefix)}
        )

    async def commit(self, operations: Sequence[Operation]) -> None:
        # What is on its way to the disk cannot be called back: a caller that gives up must not leave the file and
        # `_length` at odds.
        await asyncio.shield(asyncio.ensure_future(self._commit(operations)))

    async def _commit(self, operations: Sequence[Operation]) -> None:
        async with self._writing:
            if self._closed:
                raise RegistryError("the registry is closed")
            if self._tail_unknown:
                await self._cut()
            checked = [_checked(self._nodes, operation) for operation in operations]
            changes = [change for change in checked if change is not None]
            line = _line(changes)
            try:
                await self._runtime.offload.run(self._write, line)
            except OSError as error:
                self._tail_unknown = True
                await self._cut()
                raise self._refusal(error) from error
            self._length += len(line)
            _apply(self._nodes, changes)

    async def close(self) -> None:
        async with self._writing:
            self._file.close()
            self._closed = True

    def _write(self, line: bytes) -> None:
        self._file.pwrite(line, self._length)
        self._file.sync()

    async def _cut(self) -> None:
        """Undo what a failed write left; as long as that fails, too, nothing more is written."""
        try:
            await self._runtime.offload.run(self._truncate)
        except OSError as error:
            raise self._refusal(error) from error
        self._tail_unknown = False

    def _truncate(self) -> None:
        self._file.truncate(self._length)
        self._file.sync()

    def _refusal(self, error: OSError) -> RegistryError:
        return RegistryError(f"cannot write {self._path}: {error.strerror or error}")


_Change = dict[str, Any]


def _checked(nodes: dict[str, Node], operation: Operation) -> _Change | None:
    """The journal's form of an operation, once it is known to apply."""
    present = nodes.get(operation.path)
    match operation:
        case Create(path=path, data=data):
            if present is not None:
                raise RegistryConflict(f"{path} exists")
            return {"path": path, "data": base64.b64encode(data).decode("ascii"), "version": 0}
        case Put(path=path, data=data, version=version):
            if present is None or present.version != version:
                raise RegistryConflict(f"{path} is not at version {version}")
            return {"path": path, "data": base64.b64encode(data).decode("ascii"), "version": version + 1}
        case Delete(path=path, version=version):
            if present is None or present.version != version:
                raise RegistryConflict(f"{path} is not at version {version}")
            return {"path": path}
        case Check(path=path, version=version):
            if present is None or present.version != version:
                raise RegistryConflict(f"{path} is not at version {version}")
            return None


def _apply(nodes: dict[str, Node], changes: list[_Change]) -> None:
    for change in changes:
        if "data" in change:
            data = base64.b64decode(change["data"])
            nodes[change["path"]] = Node(data=data, version=change["version"])
        else:
            nodes.pop(change["path"], None)


def _line(changes: list[_Change]) -> bytes:
    body = json.dumps(changes, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _snapshot(nodes: dict[str, Node]) -> bytes:
    return _line(
        [
            {"path": path, "data": base64.b64encode(node.data).decode("ascii"), "version": node.version}
            for path, node in sorted(nodes.items())
        ]
    )


def _replay(content: bytes, path: str) -> tuple[dict[str, Node], int]:
    """(nodes, length of the readable part)."""
    nodes: dict[str, Node] = {}
    position = 0
    while position < len(content):
        end = content.find(b"\n", position)
        line = content[position : end if end >= 0 else len(content)]
        crc, _, body = line.partition(b" ")
        if end < 0 or crc != b"%08x" % zlib.crc32(body):
            if 0 <= end < len(content.rstrip(b"\0")) - 1:
                raise RegistryError(
                    f"{path} is damaged at byte {position}: its topics cannot be trusted. Restore the file from a backup"
                )
            break
        _apply(nodes, json.loads(body))
        position = end + 1
    return nodes, position
