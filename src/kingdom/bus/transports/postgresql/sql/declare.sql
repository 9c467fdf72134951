INSERT INTO outbox_stream (stream, ordered, dead_head, document)
VALUES ($1, $2, $3, $4::json)
ON CONFLICT (stream) DO UPDATE
SET ordered = excluded.ordered, dead_head = excluded.dead_head, document = excluded.document
