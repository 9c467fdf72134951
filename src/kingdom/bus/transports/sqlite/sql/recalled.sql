SELECT priority, next_retry_at, id, attempt_count, aggregate_type, aggregate_id, payload_json
FROM outbox_event INDEXED BY outbox_event_held
WHERE status = 'PROCESSING' AND stream = :stream AND locked_by = :token
