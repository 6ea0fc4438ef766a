"""`format("odradek")` beside Spark's own connector for Kafka, and what an exactly-once batch costs."""
