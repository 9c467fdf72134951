INSERT INTO outbox_stream (stream, ordered, dead_head, created_at) VALUES (:stream, :ordered, :dead_head, :now)
ON CONFLICT (stream) DO UPDATE SET ordered = excluded.ordered, dead_head = excluded.dead_head
