-- Branches that were pushed, and their pull requests. A new store has the table already: 001 makes one of each kind.
CREATE TABLE IF NOT EXISTS wf_landing (
    id          text PRIMARY KEY,
    workflow_id text,
    rank        integer NOT NULL,
    status      text,
    version     integer NOT NULL,
    body        text NOT NULL
);
CREATE INDEX IF NOT EXISTS wf_landing_of_workflow ON wf_landing (workflow_id, rank, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS wf_landing_by_status ON wf_landing (status, id) WHERE status IS NOT NULL;
