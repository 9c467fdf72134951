-- Holds what a worker ($4) holds under a new token. A token is the worker's name, a slash and a random part.
WITH held AS MATERIALIZED (
    SELECT e.id
    FROM outbox_event e
    WHERE e.stream = $1 AND NOT e.finished AND e.status = 'PROCESSING' AND split_part(e.locked_by, '/', 1) = $4::text
    ORDER BY e.id
    FOR UPDATE
)
UPDATE outbox_event e
SET locked_by = $3::text, locked_until = now() + make_interval(secs => $2), updated_at = now()
FROM held
WHERE e.id = held.id
RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
