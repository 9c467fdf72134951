"""git itself, killed in the middle of what the operations of ``kingdom.gitops`` ask of it."""
