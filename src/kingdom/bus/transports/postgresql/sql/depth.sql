-- One small index scan per state; finished events are never looked at.
SELECT stream, sum(pending)::bigint AS pending, sum(processing)::bigint AS processing, sum(dead)::bigint AS dead,
       coalesce(extract(epoch FROM now() - min(ready_at)), 0)::float8 AS oldest
FROM (
    SELECT e.stream, count(*) AS pending, 0 AS processing, 0 AS dead,
           min(e.next_retry_at) FILTER (WHERE e.next_retry_at <= now()) AS ready_at
    FROM outbox_event e WHERE e.status = 'PENDING' GROUP BY e.stream
    UNION ALL
    SELECT e.stream, count(*) FILTER (WHERE e.locked_until <= now()), count(*) FILTER (WHERE e.locked_until > now()), 0,
           min(e.locked_until) FILTER (WHERE e.locked_until <= now())
    FROM outbox_event e WHERE e.status = 'PROCESSING' GROUP BY e.stream
    UNION ALL
    SELECT e.stream, 0, 0, count(*), NULL FROM outbox_event e WHERE e.status = 'DEAD' GROUP BY e.stream
    UNION ALL
    SELECT s.stream, 0, 0, 0, NULL FROM outbox_stream s
) AS counted
GROUP BY stream
ORDER BY stream
