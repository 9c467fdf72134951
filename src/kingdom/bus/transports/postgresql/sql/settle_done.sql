-- Fenced by the claim's own token. The status is compared as an expression on purpose: spelled plainly, the planner
-- may choose the partial index on held rows, and under a held snapshot that index is full of dead entries.
UPDATE outbox_event e
SET status = 'DONE', processed_at = now(), updated_at = now(), locked_until = NULL
FROM unnest($1::bigint[], $2::text[]) AS verdict (id, token)
WHERE e.id = verdict.id AND e.locked_by = verdict.token AND (e.status || '') = 'PROCESSING'
RETURNING e.id
