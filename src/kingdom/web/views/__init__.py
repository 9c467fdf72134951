"""What people and programs look at, read for a page or a route: one place for both."""
