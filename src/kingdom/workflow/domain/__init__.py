"""The aggregates of the workflow layer, their states and their events. Pure Python: no I/O, no clock, no randomness."""
