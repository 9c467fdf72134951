-- Publishes into the caller's own transaction. One JSON parameter, so that it runs on every driver.
-- json_extract instead of the arrow operators, which need SQLite 3.38.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key,
     next_retry_at, created_at, updated_at)
SELECT json_extract(r.value, '$.event_id'), :stream, json_extract(r.value, '$.event_type'),
       json_extract(r.value, '$.aggregate_type'), json_extract(r.value, '$.aggregate_id'),
       json_extract(r.value, '$.payload_json'), json_extract(r.value, '$.priority'),
       CASE WHEN (SELECT s.ordered FROM outbox_stream AS s WHERE s.stream = :stream)
            THEN coalesce(json_extract(r.value, '$.aggregate_type'), '') || char(31)
                 || coalesce(json_extract(r.value, '$.aggregate_id'), '') END,
       max(coalesce(json_extract(r.value, '$.not_before'), 0), :now), :now, :now
FROM json_each(:rows) AS r
WHERE true
ON CONFLICT (event_id, stream) DO NOTHING
RETURNING event_id
