-- Publishes one event: publish.sql without the cost of arrays. Returns the event id if the event is new.
--
-- $9, unless it is NULL, is the notification, sent while the row is made: the result of pg_notify, cast to text, has
-- length 0. A separate statement for it took 0.2 ms more.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, attempt_count, ordering_key,
     next_retry_at)
VALUES ($2::text, $1::text, $3::text, $4::text, $5::text, $6::jsonb, $7::smallint,
        CASE WHEN $9::text IS NULL THEN 0 ELSE length(CAST(pg_notify('kingdom_outbox', $9::text) AS text)) END,
        (SELECT coalesce($4::text, '') || chr(31) || coalesce($5::text, '')
         FROM outbox_stream s WHERE s.stream = $1::text AND s.ordered),
        greatest($8::timestamptz, statement_timestamp()))
ON CONFLICT (event_id, stream) DO NOTHING
RETURNING event_id
