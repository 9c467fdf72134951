-- Run once for each kind of aggregate; {table} is the name of its table.
CREATE TABLE {table} (
    id          text PRIMARY KEY,
    workflow_id text,
    rank        integer NOT NULL,
    status      text,
    version     integer NOT NULL,
    body        text NOT NULL
);
CREATE INDEX {table}_of_workflow ON {table} (workflow_id, rank, id) WHERE workflow_id IS NOT NULL;
CREATE INDEX {table}_by_status ON {table} (status, id) WHERE status IS NOT NULL;
