-- Sets or clears the ordering key of events that were published before the stream was declared.
UPDATE outbox_event
SET ordering_key = CASE WHEN :ordered THEN coalesce(aggregate_type, '') || char(31) || coalesce(aggregate_id, '') END,
    blocked = 0
WHERE id IN (
    SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_ready WHERE e.status = 'PENDING' AND e.stream = :stream
    UNION ALL
    SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_held WHERE e.status = 'PROCESSING' AND e.stream = :stream
    UNION ALL
    SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_dead WHERE e.status = 'DEAD' AND e.stream = :stream)
