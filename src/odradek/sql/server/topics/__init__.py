"""Topics that the server makes, writes and counts: topics of sources, and the processing log."""
