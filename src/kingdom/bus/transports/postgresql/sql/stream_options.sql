SELECT s.stream, s.ordered, s.dead_head FROM outbox_stream s
