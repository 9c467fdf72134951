-- The rows that a relay has to carry, by shard, in publish order. A dead row is in it because it may hold back its
-- aggregate. relay_read.sql must have the same expression.
CREATE INDEX CONCURRENTLY IF NOT EXISTS "outbox_event_relay" ON outbox_event
    (stream, abs(hashtext(coalesce(aggregate_type, '') || chr(31) || coalesce(aggregate_id, '')) % 16), id)
    WHERE NOT finished OR dead
