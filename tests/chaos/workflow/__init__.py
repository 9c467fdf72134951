"""The campaign against the engine of workflows: killed at every step of a story, and at random instants under load."""
