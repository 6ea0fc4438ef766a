"""One partition's log on disk: segments, indexes, recovery, retention, producer state; and the directories they live in."""
