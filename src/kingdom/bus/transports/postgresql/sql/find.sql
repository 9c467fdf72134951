SELECT e.* FROM outbox_event e WHERE e.event_id = $1 ORDER BY e.id LIMIT 1
