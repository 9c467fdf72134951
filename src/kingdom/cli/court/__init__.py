"""The commands that run a court and look after it. Each takes ``--home`` and, for programs, ``--json``."""
