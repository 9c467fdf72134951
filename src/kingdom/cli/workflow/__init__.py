"""Commands about workflows, templates, repositories and MCP servers, and ``kingdom run``."""
