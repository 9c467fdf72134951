"""Programs that show how the bus is used, each runnable: ``python -m examples.<name>``."""
