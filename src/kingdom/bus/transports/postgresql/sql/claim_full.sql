-- Claims what is due, and what a dead worker held (its lease has ended). An event whose last attempt ($6) ended that way
-- goes DEAD instead: it would kill the next worker too.
WITH found AS MATERIALIZED (
    SELECT due.id, due.spent
    FROM generate_series(0, 2) AS rank
    CROSS JOIN LATERAL (
        SELECT e.id, e.status = 'PROCESSING' AND e.attempt_count >= coalesce(e.max_attempts, $6) AS spent
        FROM outbox_event e
        WHERE e.stream = $1 AND e.priority = rank AND NOT e.finished AND e.next_retry_at <= now()
          AND (e.status = 'PENDING' OR e.locked_until <= now())
          AND e.ordering_key IS NULL AND ($5::text[] IS NULL OR e.event_type = ANY ($5))
        ORDER BY e.next_retry_at, e.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS due
    LIMIT $2
), buried AS (
    UPDATE outbox_event e
    SET status = 'DEAD', finished = true, dead = true, held_key = NULL, processed_at = now(), updated_at = now(),
        locked_by = NULL, locked_until = NULL,
        last_error_code = 'LEASE_EXPIRED',
        last_error_message = 'the lease of attempt ' || e.attempt_count || ' ended without a verdict (' || e.locked_by || ')'
    FROM found
    WHERE e.id = found.id AND found.spent
    RETURNING e.id
), claimed AS (
    UPDATE outbox_event e
    SET status = 'PROCESSING', locked_by = $4, locked_until = now() + make_interval(secs => $3),
        attempt_count = e.attempt_count + 1, last_attempt_at = now(), updated_at = now()
    FROM found
    WHERE e.id = found.id AND NOT found.spent
    RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
)
SELECT claimed.*, NULL::bigint AS buried FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(*) FROM buried HAVING count(*) > 0
