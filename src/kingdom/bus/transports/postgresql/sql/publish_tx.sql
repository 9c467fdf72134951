-- Publishes into the caller's own transaction. One JSON parameter, so that it runs on every driver.
-- The notification is sent by PostgreSQL when (and if) the caller commits.
WITH inserted AS (
    INSERT INTO outbox_event
        (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key, next_retry_at)
    SELECT r.event_id, CAST(:stream AS text), r.event_type, r.aggregate_type, r.aggregate_id, r.payload_json, r.priority,
           CASE WHEN (SELECT s.ordered FROM outbox_stream s WHERE s.stream = CAST(:stream AS text))
                THEN coalesce(r.aggregate_type, '') || chr(31) || coalesce(r.aggregate_id, '') END,
           greatest(to_timestamp(r.not_before), statement_timestamp())
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r
        (event_id text, event_type text, aggregate_type text, aggregate_id text, payload_json jsonb, priority smallint,
         not_before double precision)
    ON CONFLICT (event_id, stream) DO NOTHING
    RETURNING event_id
)
SELECT inserted.event_id
FROM inserted CROSS JOIN (SELECT pg_notify('kingdom_outbox', CAST(:stream AS text))) AS notified
