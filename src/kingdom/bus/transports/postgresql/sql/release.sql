-- Back to PENDING as if it had never been claimed: it keeps its place and the attempt is not counted.
UPDATE outbox_event e
SET status = 'PENDING', attempt_count = e.attempt_count - 1, locked_by = NULL, locked_until = NULL, updated_at = now()
FROM unnest($1::bigint[], $2::text[]) AS lease (id, token)
WHERE e.id = lease.id AND e.locked_by = lease.token AND e.status = 'PROCESSING'
RETURNING e.id
