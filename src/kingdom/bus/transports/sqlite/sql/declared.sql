SELECT ordered, dead_head FROM outbox_stream WHERE stream = :stream
