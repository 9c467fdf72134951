SELECT event_id, event_type, aggregate_type, aggregate_id, priority, payload_json, attempt_count, last_error_code,
       last_error_message, processed_at, stream, status, created_at, next_retry_at, locked_by, locked_until, outcome
FROM outbox_event
WHERE event_id = :event_id
ORDER BY id
LIMIT 1
