INSERT INTO outbox_stream (stream, ordered, dead_head)
VALUES ($1, $2, $3)
ON CONFLICT (stream) DO UPDATE SET ordered = excluded.ordered, dead_head = excluded.dead_head
