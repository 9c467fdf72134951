SELECT ordered, dead_head, document FROM outbox_stream WHERE stream = :stream
