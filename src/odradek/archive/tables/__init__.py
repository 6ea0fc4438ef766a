"""The table formats."""
