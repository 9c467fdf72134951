-- Publishes one event: the plain form of publish.sql, without the cost of arrays. It must be new: whoever
-- is not sure adds ON CONFLICT, which costs the server more.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key, next_retry_at)
VALUES ($2::text, $1::text, $3::text, $4::text, $5::text, $6::jsonb, $7::smallint,
        (SELECT coalesce($4::text, '') || chr(31) || coalesce($5::text, '')
         FROM outbox_stream s WHERE s.stream = $1::text AND s.ordered),
        greatest($8::timestamptz, statement_timestamp()))
