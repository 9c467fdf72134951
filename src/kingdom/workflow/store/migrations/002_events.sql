-- What an interface shows. position counts over all, sequence per aggregate; neither has a gap, because both are counted
-- in the transaction they belong to.
CREATE TABLE wf_event (
    position     bigint PRIMARY KEY,
    aggregate_id text NOT NULL,
    sequence     bigint NOT NULL,
    type         text NOT NULL,
    payload      text NOT NULL,
    occurred_at  text NOT NULL,
    UNIQUE (aggregate_id, sequence)
);
CREATE TABLE wf_counter (
    name text PRIMARY KEY,
    last bigint NOT NULL
);
-- Which engine has the store: one row, renewed while it runs.
CREATE TABLE wf_engine (
    id      integer PRIMARY KEY,
    owner   text NOT NULL,
    epoch   bigint NOT NULL,
    seen_at double precision NOT NULL
);
