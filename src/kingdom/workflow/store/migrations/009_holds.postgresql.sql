-- Several engines on one store: the lease of each, by its home, and the home that has a workflow's worktrees.
-- A lease whose time is over is ended by raising its epoch: its engine can write nothing then.
CREATE TABLE IF NOT EXISTS wf_engine_lease (
    home    text PRIMARY KEY,
    owner   text NOT NULL,
    epoch   bigint NOT NULL,
    ends_at timestamptz NOT NULL
);
CREATE TABLE IF NOT EXISTS wf_hold (
    workflow_id text PRIMARY KEY,
    home        text NOT NULL REFERENCES wf_engine_lease (home)
);
CREATE INDEX IF NOT EXISTS wf_hold_by_home ON wf_hold (home);
