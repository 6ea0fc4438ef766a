"""The words everyone shares: ids, offsets, epochs, time, and the one table of error codes."""
