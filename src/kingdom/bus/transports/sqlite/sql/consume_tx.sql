-- Settles an event as DONE in the caller's transaction, if it can be claimed now: claim and verdict in one.
UPDATE outbox_event
SET status = 'DONE', processed_at = :now, updated_at = :now, last_attempt_at = :now, attempt_count = attempt_count + 1,
    locked_by = NULL, locked_until = NULL
WHERE event_id = :event_id AND stream = :stream AND blocked = 0
  AND ((status = 'PENDING' AND next_retry_at <= :now) OR (status = 'PROCESSING' AND locked_until <= :now))
  AND (ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
      WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = outbox_event.ordering_key
        AND h.locked_until > :now))
RETURNING event_id
