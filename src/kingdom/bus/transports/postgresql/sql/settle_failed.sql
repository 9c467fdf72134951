-- Retry (PENDING, due $4 seconds from now by this server's clock) or DEAD. Fenced as settle_done.sql is.
UPDATE outbox_event e
SET status = $3, finished = $3 = 'DEAD', dead = $3 = 'DEAD', held_key = NULL,
    updated_at = now(), locked_by = NULL, locked_until = NULL,
    next_retry_at = CASE WHEN $3 = 'PENDING' THEN now() + make_interval(secs => $4::float8) ELSE e.next_retry_at END,
    processed_at = CASE WHEN $3 = 'DEAD' THEN now() END,
    last_error_code = $5, last_error_message = $6
WHERE e.id = $1 AND e.locked_by = $2::text AND e.status = 'PROCESSING'
RETURNING e.id, $2::text AS token
