-- Computes what the triggers maintain: of each aggregate all but the first unfinished event are blocked.
UPDATE outbox_event
SET blocked = (EXISTS (SELECT 1 FROM outbox_event AS e INDEXED BY outbox_event_order
                       WHERE e.stream = :stream AND e.ordering_key = outbox_event.ordering_key
                         AND e.id < outbox_event.id AND e.status IN ('PENDING', 'PROCESSING'))
               OR (:park AND EXISTS (SELECT 1 FROM outbox_event AS e INDEXED BY outbox_event_order_dead
                                     WHERE e.stream = :stream AND e.ordering_key = outbox_event.ordering_key
                                       AND e.id < outbox_event.id AND e.status = 'DEAD')))
WHERE id IN (SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_order
             WHERE e.stream = :stream AND e.ordering_key IS NOT NULL AND e.status IN ('PENDING', 'PROCESSING'))
