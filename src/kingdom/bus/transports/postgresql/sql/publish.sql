-- Publishes a batch: one array per column, one round trip, one commit.
INSERT INTO outbox_event
    (event_id, stream, event_type, aggregate_type, aggregate_id, payload_json, priority, ordering_key, next_retry_at)
SELECT r.event_id, $1::text, r.event_type, r.aggregate_type, r.aggregate_id, r.payload::jsonb, r.priority,
       CASE WHEN (SELECT s.ordered FROM outbox_stream s WHERE s.stream = $1::text)
            THEN coalesce(r.aggregate_type, '') || chr(31) || coalesce(r.aggregate_id, '') END,
       greatest(r.not_before, statement_timestamp())
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::smallint[], $8::timestamptz[])
     AS r (event_id, event_type, aggregate_type, aggregate_id, payload, priority, not_before)
ON CONFLICT (event_id, stream) DO NOTHING
RETURNING event_id
