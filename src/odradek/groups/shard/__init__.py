"""The machine of one shard, and what every kind of group needs of it: records, deadlines, settings, committed offsets."""
