-- Claims behind a watermark: the hint ($6, $7: per priority, the last position claimed) keeps the index scan from
-- walking over the entries of everything claimed before. While some transaction holds an old snapshot, dead entries
-- cannot be removed, and a scan from the start slows down with every event. Retries, expired leases and late commits
-- may lie below the mark: claim_full.sql finds them.
--
-- Rejected: without the watermark, 14.4k events/s fell to 3.2k within 120,000 events under a held snapshot.
WITH picked AS MATERIALIZED (
    SELECT found.id
    FROM unnest($6::timestamptz[], $7::bigint[]) WITH ORDINALITY AS mark (ready_at, id, rank)
    CROSS JOIN LATERAL (
        SELECT e.id
        FROM outbox_event e
        WHERE e.stream = $1 AND e.priority = mark.rank - 1 AND NOT e.finished
          AND (e.next_retry_at, e.id) > (mark.ready_at, mark.id) AND e.next_retry_at <= now()
          AND e.status = 'PENDING'
          AND e.ordering_key IS NULL AND ($5::text[] IS NULL OR e.event_type = ANY ($5))
        ORDER BY e.next_retry_at, e.id
        LIMIT $2
        FOR UPDATE SKIP LOCKED
    ) AS found
    LIMIT $2
)
UPDATE outbox_event e
SET status = 'PROCESSING', locked_by = $4, locked_until = now() + make_interval(secs => $3),
    attempt_count = e.attempt_count + 1, last_attempt_at = now(), updated_at = now()
FROM picked
WHERE e.id = picked.id
RETURNING e.id, e.priority, e.next_retry_at, e.attempt_count, e.aggregate_type, e.aggregate_id, e.payload_json
