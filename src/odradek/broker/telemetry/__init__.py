"""Metrics of clients (KIP-714): who is asked for which, what was pushed, and how it is shown."""
