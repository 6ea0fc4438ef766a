"""Classic groups: members join, their leader assigns, the coordinator sees to it that they agree on the generation."""
