-- Marks of events that are forgotten: a redelivery of them is no longer possible.
DELETE FROM inbox_event i
WHERE i.received_at <= now() - make_interval(secs => $1)
  AND NOT EXISTS (SELECT 1 FROM outbox_event e WHERE e.event_id = i.event_id)
