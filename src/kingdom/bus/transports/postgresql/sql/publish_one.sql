-- Publishes one event: the plain form of publish.sql, without the cost of arrays. It must be new: whoever is not sure
-- adds ON CONFLICT, which costs the server more.
--
-- The notification ($9) is sent while the row is made: the cast of what pg_notify returns, nothing, has length 0. A
-- statement of its own for every fiftieth publish is one that the server has to warm up for, and took 0.2 ms more.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, attempt_count, ordering_key,
     next_retry_at)
VALUES ($2::text, $1::text, $3::text, $4::text, $5::text, $6::jsonb, $7::smallint,
        CASE WHEN $9::boolean THEN length(CAST(pg_notify('kingdom_outbox', $1::text) AS text)) ELSE 0 END,
        (SELECT coalesce($4::text, '') || chr(31) || coalesce($5::text, '')
         FROM outbox_stream s WHERE s.stream = $1::text AND s.ordered),
        greatest($8::timestamptz, statement_timestamp()))
