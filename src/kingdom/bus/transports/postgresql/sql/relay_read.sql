-- Reads the first rows of each shard ($2) that are not finished, up to $3 of each, after the row $4, without those of the
-- aggregates in $5. "held": this row cannot be relayed now, and nothing that follows it in its aggregate; a dead row is
-- such a one if the stream parks behind it.
--
-- Rejected: one scan in the order of id over all shards. It reads and drops the rows of the shards of other relays.
SELECT found.*
FROM unnest($2::integer[]) AS wanted (shard)
CROSS JOIN LATERAL (
    SELECT e.id, e.stream, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.payload_json, e.priority,
           CASE WHEN e.next_retry_at > now() AND e.attempt_count = 0 THEN e.next_retry_at END AS not_before,
           e.created_at, e.dead OR (e.status = 'PROCESSING' AND e.locked_until > now()) AS held
    FROM outbox_event e
    WHERE e.stream = $1
      AND abs(hashtext(coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '')) % 16) = wanted.shard
      AND (NOT e.finished OR e.dead) AND e.id > $4
      AND (NOT e.dead OR (SELECT s.ordered AND s.dead_head = 'park' FROM outbox_stream s WHERE s.stream = $1))
      AND NOT coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '') = ANY ($5::text[])
    ORDER BY e.id
    LIMIT $3
) AS found
