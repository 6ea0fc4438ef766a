"""The tree of versioned nodes: what a commit means, apart from where it is kept.

A decision (`Tree.decide`) leaves the tree alone and returns the changes; the store makes them durable and then has them
applied. Operations of one commit are judged one after another, each on what the ones before it would leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.registry.port import Check, Create, Delete, Node, Operation, Put, RegistryConflict

Change = tuple[str, Node | None]
"""A path, and what is there from now on."""


class Tree:
    """Nodes by path. `commits` counts the commits that changed something."""

    __slots__ = ("_below", "commits", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.commits = 0
        self._below: dict[str, dict[str, int]] = {}
        """The names of the children of each path that has any, and how many nodes are at or below each child."""

    def children(self, path: str) -> list[str]:
        return sorted(self._below.get(path.rstrip("/"), ()))

    def owned_by(self, session: int) -> list[str]:
        """Returns the paths of a session's ephemeral nodes."""
        return [path for path, node in self.nodes.items() if node.owner == session]

    def decide(self, operations: Sequence[Operation], session: int) -> list[Change]:
        """Returns the changes of the operations; raises `RegistryConflict` at the first one that does not apply."""
        changes: dict[str, Node | None] = {}
        for operation in operations:
            path = operation.path
            present = changes[path] if path in changes else self.nodes.get(path)
            if isinstance(operation, Create):
                if present is not None:
                    raise RegistryConflict(f"{path} exists")
                owner = session if operation.ephemeral else 0
                changes[path] = Node(data=operation.data, version=0, created=self.commits + 1, owner=owner)
                continue
            if present is None or present.version != operation.version:
                reason = "is missing" if present is None else f"is at version {present.version}"
                raise RegistryConflict(f"{path} {reason}, not at version {operation.version}")
            match operation:
                case Put(data=data, version=version):
                    changes[path] = Node(
                        data=data, version=version + 1, created=present.created, owner=present.owner
                    )
                case Delete():
                    changes[path] = None
                case Check():
                    pass
        return list(changes.items())

    def apply(self, changes: Iterable[Change]) -> list[str]:
        """Applies one commit's changes; returns the paths whose node or whose children changed."""
        self.commits += 1
        touched: dict[str, None] = {}
        for path, node in changes:
            touched[path] = None
            present = self.nodes.get(path)
            if _creation(present) != _creation(node):  # made again, it is another child of its parent
                touched[path.rpartition("/")[0] or "/"] = None
            if node is not None:
                self.nodes[path] = node
                if present is None:
                    touched.update(dict.fromkeys(self._count(path, 1)))
            elif present is not None:
                del self.nodes[path]
                touched.update(dict.fromkeys(self._count(path, -1)))
        return list(touched)

    def _count(self, path: str, step: int) -> list[str]:
        """Counts a node in or out at each of its ancestors; returns those whose children changed."""
        changed = []
        while path:
            path, _, name = path.rpartition("/")
            names = self._below.setdefault(path, {})
            count = names.get(name, 0) + step
            if count:
                names[name] = count
            else:
                del names[name]
                if not names:
                    del self._below[path]
            if count == 0 or count == step == 1:
                changed.append(path or "/")
        return changed


def changes_between(old: Tree, new: Tree) -> list[str]:
    """Returns the paths whose node or whose children differ."""
    paths = {**dict.fromkeys(old.nodes), **dict.fromkeys(new.nodes)}
    touched = [path for path in paths if old.nodes.get(path) != new.nodes.get(path)]
    above: dict[str, None] = {}
    remade: dict[str, None] = {}
    for path in touched:
        parent = path.rpartition("/")[0]
        if _creation(old.nodes.get(path)) != _creation(new.nodes.get(path)):
            remade[parent] = None
        while parent not in above:
            above[parent] = None
            parent = parent.rpartition("/")[0]
    return [
        *touched,
        *(
            parent or "/"
            for parent in above
            if parent in remade or old.children(parent) != new.children(parent)
        ),
    ]


def _creation(node: Node | None) -> int | None:
    return None if node is None else node.created
