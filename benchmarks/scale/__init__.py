"""How far a cluster goes: what it costs, measured, and a model of clusters that are too large to run here."""
