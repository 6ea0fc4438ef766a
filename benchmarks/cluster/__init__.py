"""Three brokers beside three of Apache Kafka: the flow of records, failures, and many partitions."""
