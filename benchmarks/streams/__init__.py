"""`odradek.streams` beside Kafka Streams: the same programs on the same broker."""
