"""Topics that the server makes, writes and counts: those of sources, and the processing log."""
