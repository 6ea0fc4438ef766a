"""What clients need not repeat: the sessions of fetches (KIP-227) and of share groups' members (KIP-932)."""
