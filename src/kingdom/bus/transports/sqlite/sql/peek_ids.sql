SELECT id, event_id FROM outbox_event WHERE id IN (SELECT value FROM json_each(:ids))
