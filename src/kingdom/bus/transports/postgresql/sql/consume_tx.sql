-- Settles an event as DONE in the caller's transaction, if it can be claimed now: claim and verdict in one.
UPDATE outbox_event e
SET status = 'DONE', finished = true, held_key = NULL, processed_at = now(), updated_at = now(),
    last_attempt_at = now(), attempt_count = e.attempt_count + 1, locked_by = NULL, locked_until = NULL
FROM (
    SELECT w.id
    FROM outbox_event w
    WHERE w.event_id = CAST(:event_id AS text) AND w.stream = CAST(:stream AS text)
      AND ((w.status = 'PENDING' AND w.next_retry_at <= clock_timestamp())
           OR (w.status = 'PROCESSING' AND w.locked_until <= clock_timestamp()))
      AND (w.ordering_key IS NULL OR (
          NOT EXISTS (
              SELECT 1 FROM outbox_event b
              WHERE b.stream = CAST(:stream AS text) AND b.ordering_key = w.ordering_key
                AND b.ordering_key IS NOT NULL AND b.id < w.id AND (NOT b.finished OR b.dead)
                AND (NOT b.dead
                     OR (SELECT s.dead_head = 'park' FROM outbox_stream s WHERE s.stream = CAST(:stream AS text))))
          AND NOT EXISTS (
              SELECT 1 FROM outbox_event h
              WHERE h.stream = CAST(:stream AS text) AND h.held_key = w.ordering_key AND h.id <> w.id
                AND h.locked_until > clock_timestamp())))
    FOR UPDATE OF w SKIP LOCKED
) AS head
WHERE e.id = head.id
RETURNING e.event_id
