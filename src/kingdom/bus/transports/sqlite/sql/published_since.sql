SELECT event_id, stream FROM outbox_event WHERE id > :id
