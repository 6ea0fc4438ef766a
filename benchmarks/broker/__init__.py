"""Rows of one broker that need no client library: requests, a reader from a cold disk, recovery."""
