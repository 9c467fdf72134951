-- Claims from an ordered stream: only the first unfinished event of each aggregate.
--
-- The recursive part jumps from aggregate to aggregate along the index (a loose scan), so that one aggregate with a
-- hundred thousand events waiting costs one step, not a hundred thousand. $7: where to start; $8: whether a dead head
-- holds its aggregate back (park); $9: how many aggregates to look at.
--
-- Rejected: an anti-join ("no earlier unfinished event of this aggregate") over the pending rows. It is exact too,
-- but reads every waiting event of a blocked aggregate on every claim.
WITH RECURSIVE head AS (
    (SELECT e.ordering_key, e.id
     FROM outbox_event e
     WHERE e.stream = $1 AND e.ordering_key IS NOT NULL AND (NOT e.finished OR e.dead) AND ($8 OR NOT e.dead)
       AND e.ordering_key > $7
     ORDER BY e.ordering_key, e.id
     LIMIT 1)
    UNION ALL
    SELECT next.ordering_key, next.id
    FROM head
    CROSS JOIN LATERAL (
        SELECT e.ordering_key, e.id
        FROM outbox_event e
        WHERE e.stream = $1 AND e.ordering_key IS NOT NULL AND (NOT e.finished OR e.dead) AND ($8 OR NOT e.dead)
          AND e.ordering_key > head.ordering_key
        ORDER BY e.ordering_key, e.id
        LIMIT 1
    ) AS next
), looked_at AS MATERIALIZED (
    SELECT ordering_key, id FROM head LIMIT $9
), free AS MATERIALIZED (
    SELECT head.*
    FROM looked_at
    CROSS JOIN LATERAL (
        SELECT e.id, e.priority, e.next_retry_at AS ready_at,
               e.status = 'PROCESSING' AND e.attempt_count >= coalesce(e.max_attempts, $6) AS spent
        FROM outbox_event e
        WHERE e.id = looked_at.id
          AND ((e.status = 'PENDING' AND e.next_retry_at <= now())
               OR (e.status = 'PROCESSING' AND e.locked_until <= now()))
          AND ($5::text[] IS NULL OR e.event_type = ANY ($5))
          -- One at a time, also when an operator requeued the head while a follower is being handled.
          AND NOT EXISTS (
              SELECT 1 FROM outbox_event h
              WHERE h.stream = $1 AND h.held_key = looked_at.ordering_key AND h.id <> e.id AND h.locked_until > now())
        FOR UPDATE OF e SKIP LOCKED
    ) AS head
), buried AS (
    UPDATE outbox_event e
    SET status = 'DEAD', finished = true, dead = true, held_key = NULL, processed_at = now(), updated_at = now(),
        locked_by = NULL, locked_until = NULL,
        last_error_code = 'LEASE_EXPIRED',
        last_error_message = 'the lease of attempt ' || e.attempt_count || ' ended without a verdict (' || e.locked_by || ')'
    FROM free
    WHERE e.id = free.id AND free.spent
    RETURNING e.id
), picked AS MATERIALIZED (
    SELECT id FROM free WHERE NOT spent ORDER BY priority, ready_at, id LIMIT $2
), claimed AS (
    UPDATE outbox_event e
    SET status = 'PROCESSING', held_key = e.ordering_key, locked_by = $4,
        locked_until = now() + make_interval(secs => $3), attempt_count = e.attempt_count + 1,
        last_attempt_at = now(), updated_at = now()
    FROM picked
    WHERE e.id = picked.id
    RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
)
SELECT claimed.*, (SELECT count(*) FROM looked_at) AS looked_at, (SELECT max(ordering_key) FROM looked_at) AS reached,
       (SELECT count(*) FROM buried) AS buried
FROM (SELECT 1) AS always LEFT JOIN claimed ON true
