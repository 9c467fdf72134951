SELECT s.stream, s.ordered, s.dead_head, s.document FROM outbox_stream s
