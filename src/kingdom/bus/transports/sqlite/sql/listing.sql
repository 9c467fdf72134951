-- A page of all events of a stream in publish order: after the row :after, changed since :since (NULL: any time), with
-- an id that matches :ids.
SELECT event_id, event_type, aggregate_type, aggregate_id, priority, payload_json, attempt_count, last_error_code,
       last_error_message, processed_at, stream, status, created_at, next_retry_at, locked_by, locked_until, outcome, id
FROM outbox_event NOT INDEXED
WHERE stream = :stream AND id > :after AND (:since IS NULL OR updated_at >= :since) AND event_id GLOB :ids
ORDER BY id
LIMIT :limit
