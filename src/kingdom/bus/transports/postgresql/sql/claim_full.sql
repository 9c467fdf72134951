-- Claims everything there is to claim: what is due, and what a worker let go of by dying (its lease ended).
-- What died on its last attempt ($6) is buried instead: it would kill the next worker too.
WITH stale AS MATERIALIZED (
    SELECT e.id, e.priority, e.locked_until AS ready_at, e.attempt_count >= coalesce(e.max_attempts, $6) AS spent
    FROM outbox_event e
    WHERE e.stream = $1 AND e.status = 'PROCESSING' AND e.locked_until <= now()
      AND ($5::text[] IS NULL OR e.event_type = ANY ($5))
    ORDER BY e.id
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
), buried AS (
    UPDATE outbox_event e
    SET status = 'DEAD', processed_at = now(), updated_at = now(), locked_by = NULL, locked_until = NULL,
        last_error_code = 'LEASE_EXPIRED',
        last_error_message = 'the lease of attempt ' || e.attempt_count || ' ended without a verdict (' || e.locked_by || ')'
    FROM stale
    WHERE e.id = stale.id AND stale.spent
), due AS MATERIALIZED (
    SELECT found.id, found.priority, found.next_retry_at AS ready_at
    FROM generate_series(0, 2) AS rank
    CROSS JOIN LATERAL (
        SELECT e.id, e.priority, e.next_retry_at
        FROM outbox_event e
        WHERE e.stream = $1 AND e.priority = rank AND e.status = 'PENDING' AND e.next_retry_at <= now()
          AND ($5::text[] IS NULL OR e.event_type = ANY ($5))
        ORDER BY e.next_retry_at, e.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS found
    LIMIT $2
), picked AS MATERIALIZED (
    SELECT id
    FROM (SELECT id, priority, ready_at FROM stale WHERE NOT spent UNION ALL SELECT id, priority, ready_at FROM due) AS candidate
    ORDER BY priority, ready_at, id
    LIMIT $2
)
UPDATE outbox_event e
SET status = 'PROCESSING', locked_by = $4, locked_until = now() + make_interval(secs => $3),
    next_retry_at = CASE WHEN e.status = 'PROCESSING' THEN e.locked_until ELSE e.next_retry_at END,
    attempt_count = e.attempt_count + 1, last_attempt_at = now(), updated_at = now()
FROM picked
WHERE e.id = picked.id
RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
