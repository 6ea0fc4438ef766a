"""Consumer groups of KIP-848: the broker assigns, members reconcile."""
