"""What a commit means, and what two trees differ in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.registry import Create, Delete, Node, Operation, Put, RegistryConflict
from odradek.registry.tree import Tree, changes_between

_PATHS = ("/a", "/a/b", "/a/b/c", "/a/d", "/e", "/e/f/g")
STEPS = st.lists(
    st.tuples(st.sampled_from(["create", "ephemeral", "put", "delete"]), st.sampled_from(_PATHS)), max_size=25
)


def operation(tree: Tree, kind: str, path: str) -> Operation:
    version = tree.nodes[path].version if path in tree.nodes else 0
    if kind == "put":
        return Put(path=path, data=b"%d" % version, version=version)
    if kind == "delete":
        return Delete(path=path, version=version)
    return Create(path=path, data=b"", ephemeral=kind == "ephemeral")


def grown(steps: list[tuple[str, str]]) -> tuple[Tree, list[tuple[dict[str, object], list[str]]]]:
    """The tree after the steps, and for each what could be read before it and which paths it touched."""
    tree = Tree()
    history = []
    for kind, path in steps:
        try:
            changes = tree.decide([operation(tree, kind, path)], 7)
        except RegistryConflict:
            continue
        before = readable(tree)
        history.append((before, tree.apply(changes)))
        assert differing(before, readable(tree)) == set(history[-1][1])
    return tree, history


def readable(tree: Tree) -> dict[str, object]:
    parents = {"/", *(path.rsplit("/", count)[0] for path in _PATHS for count in (1, 2))} - {""}
    return {path: (tree.nodes.get(path), lives(tree, path)) for path in (*_PATHS, *parents)}


def lives(tree: Tree, path: str) -> list[tuple[str, int]]:
    """The children, each with when it was made: one that was made again is another."""
    results = []
    for name in tree.children(path):
        node = tree.nodes.get(f"{path.rstrip('/')}/{name}")
        results.append((name, node.created if node is not None else 0))
    return results


def differing(before: dict[str, object], after: dict[str, object]) -> set[str]:
    return {path for path in before if before[path] != after[path]}


@settings(deadline=None, max_examples=100)
@given(steps=STEPS)
def test_exactly_the_paths_that_read_differently_are_touched(steps: list[tuple[str, str]]) -> None:
    grown(steps)


@settings(deadline=None, max_examples=100)
@given(some=STEPS, others=STEPS)
def test_trees_differ_exactly_where_they_read_differently(
    some: list[tuple[str, str]], others: list[tuple[str, str]]
) -> None:
    old, new = grown(some)[0], grown(others)[0]
    assert set(changes_between(old, new)) == differing(readable(old), readable(new))


def test_a_node_made_again_in_the_commit_that_removes_it_is_another() -> None:
    tree = Tree()
    tree.apply(tree.decide([Create(path="/a", data=b"old")], 1))
    tree.apply(tree.decide([Delete(path="/a", version=0), Create(path="/a", data=b"new", ephemeral=True)], 9))
    assert tree.nodes == {"/a": Node(data=b"new", version=0, created=2, owner=9)}
    assert tree.owned_by(9) == ["/a"]


def test_a_node_that_is_replaced_in_one_commit_is_another_child_of_its_parent() -> None:
    """Else no one who watches the brokers would hear of a broker that was restarted within its session's time."""
    old, tree = Tree(), Tree()
    for some_tree in (old, tree):
        some_tree.apply(some_tree.decide([Create(path="/brokers/1", data=b"one", ephemeral=True)], 7))
    again: list[Operation] = [
        Delete(path="/brokers/1", version=0),
        Create(path="/brokers/1", data=b"one", ephemeral=True),
    ]
    assert tree.apply(tree.decide(again, 8)) == ["/brokers/1", "/brokers"]
    assert sorted(changes_between(old, tree)) == ["/brokers", "/brokers/1"]
