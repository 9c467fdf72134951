-- Returns to PENDING as if never claimed: with the old position, and the attempt is not counted.
UPDATE outbox_event e
SET status = 'PENDING', held_key = NULL, attempt_count = e.attempt_count - 1, locked_by = NULL, locked_until = NULL,
    updated_at = now()
WHERE e.id = ANY ($1::bigint[]) AND e.locked_by = $2::text AND e.status = 'PROCESSING'
RETURNING e.id, $2::text AS token
