-- Inbox marks of deleted events, which can no longer be redelivered.
DELETE FROM inbox_event
WHERE (consumer, event_id) IN (
    SELECT i.consumer, i.event_id FROM inbox_event AS i INDEXED BY inbox_event_received
    WHERE i.received_at <= :before AND NOT EXISTS (SELECT 1 FROM outbox_event AS e WHERE e.event_id = i.event_id)
    LIMIT :limit)
