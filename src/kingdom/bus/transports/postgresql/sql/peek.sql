-- A page ($3) of the positions of events that could be claimed now, after the position ($4, $5, $6).
--
-- In an ordered stream it reads every waiting event, with two index look-ups for each. A claim, which is far more
-- frequent, is cheaper (claim_ordered.sql).
SELECT due.*
FROM generate_series($4::int, 2) AS rank
CROSS JOIN LATERAL (
    SELECT e.priority, e.next_retry_at, e.id, e.event_id
    FROM outbox_event e
    WHERE e.stream = $1 AND e.priority = rank AND NOT e.finished AND e.next_retry_at <= now()
      AND (e.next_retry_at, e.id) > (CASE WHEN rank = $4 THEN $5::timestamptz ELSE '-infinity' END,
                                     CASE WHEN rank = $4 THEN $6::bigint ELSE 0 END)
      AND (e.status = 'PENDING' OR e.locked_until <= now())
      AND ($2::text[] IS NULL OR e.event_type = ANY ($2))
      AND (e.ordering_key IS NULL OR (
          NOT EXISTS (
              SELECT 1 FROM outbox_event b
              WHERE b.stream = $1 AND b.ordering_key = e.ordering_key AND b.ordering_key IS NOT NULL AND b.id < e.id
                AND (NOT b.finished OR b.dead)
                AND (NOT b.dead OR (SELECT s.dead_head = 'park' FROM outbox_stream s WHERE s.stream = $1)))
          AND NOT EXISTS (
              SELECT 1 FROM outbox_event h
              WHERE h.stream = $1 AND h.held_key = e.ordering_key AND h.id <> e.id AND h.locked_until > now())))
    ORDER BY e.next_retry_at, e.id
    LIMIT $3
) AS due
ORDER BY due.priority, due.next_retry_at, due.id
LIMIT $3
