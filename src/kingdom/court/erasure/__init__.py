"""Export and remove everything that a court knows about a person or a repository."""
