SELECT e.event_id, e.event_type, e.priority, e.aggregate_type, e.aggregate_id, e.payload_json, e.attempt_count, e.last_error_code,
       e.last_error_message, e.processed_at
FROM outbox_event e
WHERE e.stream = $1 AND e.dead
ORDER BY e.processed_at DESC, e.id DESC
LIMIT $2
