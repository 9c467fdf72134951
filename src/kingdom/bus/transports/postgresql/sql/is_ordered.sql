SELECT s.ordered FROM outbox_stream s WHERE s.stream = $1
