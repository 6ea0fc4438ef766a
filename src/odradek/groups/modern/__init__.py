"""The common parts of consumer groups and share groups (Kafka's ModernGroup): epochs, drafts, target assignments."""
