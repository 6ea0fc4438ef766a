"""Checks that the archive has everything exactly once, and measures its lag."""
