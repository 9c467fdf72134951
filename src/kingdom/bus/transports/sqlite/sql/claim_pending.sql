SELECT e.priority, e.next_retry_at AS ready_at, e.id
FROM outbox_event AS e INDEXED BY outbox_event_ready
WHERE e.status = 'PENDING' AND e.stream = :stream AND e.blocked = 0 AND e.event_type = :type AND e.priority = :priority
  AND e.next_retry_at <= :now
  AND (e.ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
      WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = e.ordering_key AND h.locked_until > :now))
