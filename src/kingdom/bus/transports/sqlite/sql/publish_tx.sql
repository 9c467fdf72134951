-- Publishes into the caller's own transaction. One JSON parameter, so that it runs on every driver.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key,
     next_retry_at, created_at, updated_at)
SELECT r.value ->> 'event_id', :stream, r.value ->> 'event_type', r.value ->> 'aggregate_type',
       r.value ->> 'aggregate_id', json_extract(r.value, '$.payload_json'), r.value ->> 'priority',
       CASE WHEN (SELECT s.ordered FROM outbox_stream s WHERE s.stream = :stream)
            THEN coalesce(r.value ->> 'aggregate_type', '') || char(31) || coalesce(r.value ->> 'aggregate_id', '') END,
       max(coalesce(r.value ->> 'not_before', 0), :now), :now, :now
FROM json_each(:rows) AS r
WHERE true
ON CONFLICT (event_id, stream) DO NOTHING
RETURNING event_id
