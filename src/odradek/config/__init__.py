"""Every setting, declared once: Kafka's key, type, default, bounds, and what it means."""
