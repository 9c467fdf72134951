DELETE FROM outbox_event
WHERE id IN (SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_dead
             WHERE e.status = 'DEAD' AND e.stream = :stream AND e.processed_at <= :before
               AND e.event_id NOT IN (SELECT value FROM json_each(:keep))
               AND (:only IS NULL OR e.event_id IN (SELECT value FROM json_each(:only)))
             LIMIT :limit)
