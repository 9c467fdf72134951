-- Retry (PENDING, due $4 seconds from now by this server's clock) or DEAD. Fenced as settle_done.sql is.
UPDATE outbox_event e
SET status = verdict.status, updated_at = now(), locked_by = NULL, locked_until = NULL,
    next_retry_at = CASE WHEN verdict.status = 'PENDING' THEN now() + make_interval(secs => verdict.after)
                         ELSE e.next_retry_at END,
    processed_at = CASE WHEN verdict.status = 'DEAD' THEN now() END,
    last_error_code = verdict.code, last_error_message = verdict.message
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::float8[], $5::text[], $6::text[])
     AS verdict (id, token, status, after, code, message)
WHERE e.id = verdict.id AND e.locked_by = verdict.token AND e.status = 'PROCESSING'
RETURNING e.id
