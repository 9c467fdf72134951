"""The king: dispatches events to generals and reports the results to people."""
