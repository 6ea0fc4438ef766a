"""The committed offsets of groups: commits, within transactions and without, and their expiry."""
