-- settle_done.sql for events with an outcome ($3).
UPDATE outbox_event e
SET status = 'DONE', finished = true, held_key = NULL, processed_at = now(), updated_at = now(), locked_until = NULL,
    outcome = $3::text
WHERE e.id = ANY ($1::bigint[]) AND e.locked_by = $2::text AND e.status = 'PROCESSING'
RETURNING e.id, $2::text AS token
