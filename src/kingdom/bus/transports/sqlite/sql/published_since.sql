SELECT event_id FROM outbox_event WHERE id > :id
