-- Returns whether this changed the order of the stream, and whether it was changed within the last second.
INSERT INTO outbox_stream AS s (stream, ordered, dead_head, document, changed_at)
VALUES ($1, $2, $3, $4::json, CASE WHEN $2 THEN clock_timestamp() END)
ON CONFLICT (stream) DO UPDATE
SET ordered = excluded.ordered, dead_head = excluded.dead_head, document = excluded.document,
    changed_at = CASE WHEN s.ordered = excluded.ordered THEN s.changed_at ELSE clock_timestamp() END
RETURNING s.changed_at >= now() AS changed, s.changed_at > clock_timestamp() - interval '1 second' AS fresh
