"""Adapters of the workflow layer's ports: agents, git, files, MCP servers, and query templates."""
