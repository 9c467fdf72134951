-- The events of a claim by id, if they can be claimed: claim_pending.sql and claim_expired.sql in one.
SELECT e.priority, e.next_retry_at AS ready_at, e.id
FROM (SELECT DISTINCT value AS event_id FROM json_each(:event_ids)) AS wanted
CROSS JOIN outbox_event AS e ON e.event_id = wanted.event_id AND e.stream = :stream
WHERE e.blocked = 0
  AND ((e.status = 'PENDING' AND e.next_retry_at <= :now) OR (e.status = 'PROCESSING' AND e.locked_until <= :now))
  AND (:types IS NULL OR e.event_type IN (SELECT value FROM json_each(:types)))
  AND (e.ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
      WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = e.ordering_key AND h.locked_until > :now))
