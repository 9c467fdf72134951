SELECT e.event_type, count(*) AS waiting
FROM outbox_event e
WHERE e.stream = $1 AND (e.status = 'PENDING' OR (e.status = 'PROCESSING' AND e.locked_until <= now()))
GROUP BY e.event_type
ORDER BY e.event_type
