-- How full one stream is: pending, processing, dead, and when the oldest event that can be claimed became ready.
WITH rank (priority) AS (VALUES (0), (1), (2)),
expired (number) AS (
    SELECT count(*) FROM outbox_event INDEXED BY outbox_event_held
    WHERE status = 'PROCESSING' AND stream = :stream AND priority IN (0, 1, 2) AND locked_until <= :now)
SELECT (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_ready WHERE status = 'PENDING' AND stream = :stream)
           + expired.number,
       (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_held WHERE status = 'PROCESSING' AND stream = :stream)
           - expired.number,
       (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_dead WHERE status = 'DEAD' AND stream = :stream),
       (SELECT min(ready_at) FROM (
            SELECT (SELECT min(e.next_retry_at) FROM outbox_event AS e INDEXED BY outbox_event_ready
                    WHERE e.status = 'PENDING' AND e.stream = :stream AND e.blocked = 0 AND e.priority = rank.priority
                      AND e.next_retry_at <= :now) AS ready_at
            FROM rank
            UNION ALL
            SELECT (SELECT min(e.locked_until) FROM outbox_event AS e INDEXED BY outbox_event_held
                    WHERE e.status = 'PROCESSING' AND e.stream = :stream AND e.priority = rank.priority
                      AND e.locked_until <= :now)
            FROM rank))
FROM expired
