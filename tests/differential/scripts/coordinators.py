"""FindCoordinator: of groups, transactions and share groups, one and many, good names and bad."""

from tests.differential.asker import Asker

from odradek.protocol.messages.metadata.find_coordinator import FindCoordinatorRequest

GROUP, TRANSACTION, SHARE = 0, 1, 2


def script(peer: Asker) -> None:
    for kind in (GROUP, TRANSACTION):
        peer.until(
            lambda response: response.coordinators[0].error_code == 0,
            FindCoordinatorRequest(key_type=kind, coordinator_keys=["co-one"]),
        )
        for version in (4, 5, 6):
            wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=["co-one", "co-two"])
            peer.ask(f"two of kind {kind}, version {version}", wanted, version)
        for version in (1, 2, 3):
            peer.ask(
                f"kind {kind}, version {version}",
                FindCoordinatorRequest(key_type=kind, key="co-one"),
                version,
            )
        peer.ask(
            f"an empty name of kind {kind}", FindCoordinatorRequest(key_type=kind, coordinator_keys=[""])
        )
        peer.ask(f"no name of kind {kind}", FindCoordinatorRequest(key_type=kind, coordinator_keys=[]))
        twice = FindCoordinatorRequest(key_type=kind, coordinator_keys=["co-one", "co-one"])
        peer.ask(f"a name of kind {kind} twice", twice)
    peer.ask("version 0", FindCoordinatorRequest(key="co-one"), 0)
    peer.ask("a kind that does not exist", FindCoordinatorRequest(key_type=9, coordinator_keys=["co-one"]))
    peer.ask("a kind below zero", FindCoordinatorRequest(key_type=-1, coordinator_keys=["co-one"]))
    peer.ask("a bad share key", FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["co-one"]))
    peer.ask(
        "a share key before its time", FindCoordinatorRequest(key_type=SHARE, coordinator_keys=["co-one"]), 5
    )
