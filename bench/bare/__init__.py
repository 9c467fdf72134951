"""The bare loops: what a careful hand writes directly on the store, with no library in between."""
