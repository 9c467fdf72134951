-- Claims events by id ($5), of ordered streams and others: claim_full.sql and claim_ordered.sql in one.
WITH found AS MATERIALIZED (
    SELECT e.id, e.status = 'PROCESSING' AND e.attempt_count >= coalesce(e.max_attempts, $7) AS spent
    FROM outbox_event e
    WHERE e.stream = $1 AND e.event_id = ANY ($5::text[]) AND NOT e.finished
      AND ((e.status = 'PENDING' AND e.next_retry_at <= now()) OR (e.status = 'PROCESSING' AND e.locked_until <= now()))
      AND ($6::text[] IS NULL OR e.event_type = ANY ($6))
      AND (e.ordering_key IS NULL OR (
          NOT EXISTS (
              SELECT 1 FROM outbox_event b
              WHERE b.stream = $1 AND b.ordering_key = e.ordering_key AND b.ordering_key IS NOT NULL AND b.id < e.id
                AND (NOT b.finished OR b.dead)
                AND (NOT b.dead OR (SELECT s.dead_head = 'park' FROM outbox_stream s WHERE s.stream = $1)))
          AND NOT EXISTS (
              SELECT 1 FROM outbox_event h
              WHERE h.stream = $1 AND h.held_key = e.ordering_key AND h.id <> e.id AND h.locked_until > now())))
    ORDER BY e.priority, e.next_retry_at, e.id
    LIMIT $2
    FOR UPDATE OF e SKIP LOCKED
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
    SET status = 'PROCESSING', held_key = e.ordering_key, locked_by = $4,
        locked_until = now() + make_interval(secs => $3), attempt_count = e.attempt_count + 1,
        last_attempt_at = now(), updated_at = now()
    FROM found
    WHERE e.id = found.id AND NOT found.spent
    RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
)
SELECT claimed.*, NULL::bigint AS buried FROM claimed
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(*) FROM buried HAVING count(*) > 0
