SELECT id, payload_json FROM outbox_event WHERE id IN (SELECT value FROM json_each(:ids))
