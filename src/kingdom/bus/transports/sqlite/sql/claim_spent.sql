-- Events whose lease ended on their last attempt. They killed or blocked every worker that claimed them.
SELECT e.id
FROM outbox_event AS e INDEXED BY outbox_event_held
WHERE e.status = 'PROCESSING' AND e.stream = :stream AND e.priority IN (0, 1, 2) AND e.locked_until <= :now
  AND e.blocked = 0
  AND e.attempt_count >= coalesce(e.max_attempts, :max_attempts)
  AND (:types IS NULL OR e.event_type IN (SELECT value FROM json_each(:types)))
  AND (:event_ids IS NULL OR e.event_id IN (SELECT value FROM json_each(:event_ids)))
  AND (e.ordering_key IS NULL OR NOT EXISTS (
      SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
      WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = e.ordering_key
        AND h.locked_until > :now))
