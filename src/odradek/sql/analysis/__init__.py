"""Names, types and keys of queries."""
