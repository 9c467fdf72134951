-- Publishes one event into the caller's own transaction, the usual case: publish_tx.sql without JSON.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key,
     next_retry_at, created_at, updated_at)
VALUES (:event_id, :stream, :event_type, :aggregate_type, :aggregate_id, :payload_json, :priority,
        (SELECT coalesce(:aggregate_type, '') || char(31) || coalesce(:aggregate_id, '')
         FROM outbox_stream AS s WHERE s.stream = :stream AND s.ordered),
        max(coalesce(:not_before, 0), :now), :now, :now)
ON CONFLICT (event_id, stream) DO NOTHING
RETURNING event_id
