SELECT e.event_type, count(*) AS waiting
FROM outbox_event e
WHERE e.stream = $1 AND NOT e.finished AND (e.status = 'PENDING' OR e.locked_until <= now())
GROUP BY e.event_type
ORDER BY e.event_type
