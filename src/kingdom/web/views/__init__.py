"""Read models: what the API returns and the dashboard shows, read in one place for both."""
