"""SQL for streams and tables: ksqlDB's statements, on `odradek.streams`."""
