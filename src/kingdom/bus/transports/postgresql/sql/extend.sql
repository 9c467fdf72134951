UPDATE outbox_event e
SET locked_until = now() + make_interval(secs => $3)
WHERE e.id = ANY ($1::bigint[]) AND e.locked_by = $2::text AND e.status = 'PROCESSING'
RETURNING e.id, $2::text AS token
