SELECT event_type, count(*)
FROM (
    SELECT event_type FROM outbox_event INDEXED BY outbox_event_ready WHERE status = 'PENDING' AND stream = :stream
    UNION ALL
    SELECT event_type FROM outbox_event INDEXED BY outbox_event_held
    WHERE status = 'PROCESSING' AND stream = :stream AND priority IN (0, 1, 2) AND locked_until <= :now)
GROUP BY event_type
ORDER BY event_type
