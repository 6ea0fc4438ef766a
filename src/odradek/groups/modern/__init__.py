"""What consumer groups and share groups have in common (Kafka's ModernGroup): epochs, drafts, target assignments."""
