-- Events whose lease has ended. They keep their position in claim order, so these few are sorted.
SELECT e.priority, e.next_retry_at AS ready_at, e.id
FROM outbox_event AS e INDEXED BY outbox_event_held
WHERE e.status = 'PROCESSING' AND e.stream = :stream AND e.priority = :priority AND e.locked_until <= :now
  AND e.blocked = 0
  AND (:types IS NULL OR e.event_type IN (SELECT value FROM json_each(:types)))
  AND (e.ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
      WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = e.ordering_key AND h.locked_until > :now))
