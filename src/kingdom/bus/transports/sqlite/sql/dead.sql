SELECT event_id, event_type, aggregate_type, aggregate_id, priority, payload_json, attempt_count, last_error_code,
       last_error_message, processed_at
FROM outbox_event INDEXED BY outbox_event_dead
WHERE status = 'DEAD' AND stream = :stream
ORDER BY processed_at DESC, id DESC
LIMIT :limit
