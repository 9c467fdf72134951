"""What several use cases and handlers share: resources, checkpoints, and stopping."""
