SELECT s.stream, s.ordered, s.dead_head, s.document, coalesce(s.changed_at > now() - interval '1 hour', false) AS settling
FROM outbox_stream s
