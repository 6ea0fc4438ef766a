"""Topic and archive, read as one."""
