"""The options of a read and of a write, checked; every refusal names the right thing."""
