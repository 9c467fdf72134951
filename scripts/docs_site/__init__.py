"""Build the documentation as a static site: ``make docs``."""
