-- Publishes one event into a stream that is not ordered, as far as anybody knew a moment ago: publish_one.sql without the
-- look-up.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, attempt_count, next_retry_at)
VALUES ($2::text, $1::text, $3::text, $4::text, $5::text, $6::jsonb, $7::smallint,
        CASE WHEN $9::boolean THEN length(CAST(pg_notify('kingdom_outbox', $1::text) AS text)) ELSE 0 END,
        greatest($8::timestamptz, statement_timestamp()))
