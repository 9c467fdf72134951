"""The king: hears events, has generals act on them, and answers for what came of it."""
