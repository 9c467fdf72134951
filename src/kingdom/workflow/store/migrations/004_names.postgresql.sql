-- Names of repositories and MCP servers are unique. Should two have the same one, from before there was an index, the
-- first keeps it here.
ALTER TABLE wf_git ADD COLUMN name text;
UPDATE wf_git SET name = body::json ->> 'name'
    WHERE id IN (SELECT min(id) FROM wf_git GROUP BY body::json ->> 'name');
CREATE UNIQUE INDEX wf_git_by_name ON wf_git (name);
ALTER TABLE wf_mcp_server ADD COLUMN name text;
UPDATE wf_mcp_server SET name = body::json ->> 'name'
    WHERE id IN (SELECT min(id) FROM wf_mcp_server GROUP BY body::json ->> 'name');
CREATE UNIQUE INDEX wf_mcp_server_by_name ON wf_mcp_server (name);
