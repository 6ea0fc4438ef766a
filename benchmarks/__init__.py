"""Benchmarks that put Odradek beside Apache Kafka and its Python clients beside other people's."""
