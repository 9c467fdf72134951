-- Two index scans; finished events are never read.
SELECT stream, sum(pending)::bigint AS pending, sum(processing)::bigint AS processing, sum(dead)::bigint AS dead,
       coalesce(extract(epoch FROM now() - min(ready_at)), 0)::float8 AS oldest
FROM (
    SELECT e.stream, count(*) FILTER (WHERE e.status = 'PENDING' OR e.locked_until <= now()) AS pending,
           count(*) FILTER (WHERE e.status = 'PROCESSING' AND e.locked_until > now()) AS processing, 0 AS dead,
           min(CASE WHEN e.status = 'PENDING' THEN e.next_retry_at ELSE e.locked_until END)
               FILTER (WHERE e.next_retry_at <= now() AND (e.status = 'PENDING' OR e.locked_until <= now())) AS ready_at
    FROM outbox_event e WHERE NOT e.finished GROUP BY e.stream
    UNION ALL
    SELECT e.stream, 0, 0, count(*), NULL FROM outbox_event e WHERE e.dead GROUP BY e.stream
    UNION ALL
    SELECT s.stream, 0, 0, 0, NULL FROM outbox_stream s
) AS counted
GROUP BY stream
ORDER BY stream
