"""The workflow layer's ports over the rest of the house: agents, git, files, MCP servers, and the texts of queries."""
