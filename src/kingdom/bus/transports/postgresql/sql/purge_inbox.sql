-- Inbox marks of deleted events, which can no longer be redelivered.
DELETE FROM inbox_event i
WHERE i.received_at <= now() - make_interval(secs => $1)
  AND NOT EXISTS (SELECT 1 FROM outbox_event e WHERE e.event_id = i.event_id)
