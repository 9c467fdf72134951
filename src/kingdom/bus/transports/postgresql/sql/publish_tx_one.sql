-- Publishes one event into the caller's own transaction, the usual case: publish_tx.sql without JSON.
WITH inserted AS (
    INSERT INTO outbox_event
        (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key, next_retry_at)
    VALUES (CAST(:event_id AS text), CAST(:stream AS text), CAST(:event_type AS text), CAST(:aggregate_type AS text),
            CAST(:aggregate_id AS text), CAST(:payload_json AS jsonb), CAST(:priority AS smallint),
            (SELECT coalesce(CAST(:aggregate_type AS text), '') || chr(31) || coalesce(CAST(:aggregate_id AS text), '')
             FROM outbox_stream s WHERE s.stream = CAST(:stream AS text) AND s.ordered),
            greatest(to_timestamp(CAST(:not_before AS double precision)), statement_timestamp()))
    ON CONFLICT (event_id, stream) DO NOTHING
    RETURNING event_id
)
SELECT inserted.event_id
FROM inserted CROSS JOIN (
    SELECT pg_notify('kingdom_outbox', CAST(:stream AS text) || chr(9) || CAST(:event_type AS text))
) AS notified
