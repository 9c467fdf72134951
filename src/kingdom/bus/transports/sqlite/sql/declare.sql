INSERT INTO outbox_stream (stream, ordered, dead_head, document, created_at)
VALUES (:stream, :ordered, :dead_head, :document, :now)
ON CONFLICT (stream) DO UPDATE
SET ordered = excluded.ordered, dead_head = excluded.dead_head, document = excluded.document
