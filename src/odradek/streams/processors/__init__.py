"""What keyed operators do, without Spark: rows in, updates out, over a narrow store."""
