-- Counts one stream: pending, processing, dead, and when the oldest claimable event became ready.
WITH RECURSIVE rank (priority) AS (VALUES (0), (1), (2)),
waiting (type) AS (  -- as in claim_types.sql
    SELECT min(event_type) FROM outbox_event INDEXED BY outbox_event_ready
    WHERE status = 'PENDING' AND stream = :stream AND blocked = 0
    UNION ALL
    SELECT (SELECT min(e.event_type) FROM outbox_event AS e INDEXED BY outbox_event_ready
            WHERE e.status = 'PENDING' AND e.stream = :stream AND e.blocked = 0 AND e.event_type > waiting.type)
    FROM waiting WHERE waiting.type IS NOT NULL),
ready (at) AS (
    SELECT (SELECT min(e.next_retry_at) FROM outbox_event AS e INDEXED BY outbox_event_ready
            WHERE e.status = 'PENDING' AND e.stream = :stream AND e.blocked = 0 AND e.event_type = waiting.type
              AND e.priority = rank.priority AND e.next_retry_at <= :now)
    FROM waiting CROSS JOIN rank
    UNION ALL
    SELECT (SELECT min(e.locked_until) FROM outbox_event AS e INDEXED BY outbox_event_held
            WHERE e.status = 'PROCESSING' AND e.stream = :stream AND e.priority = rank.priority
              AND e.locked_until <= :now)
    FROM rank),
expired (number) AS (
    SELECT count(*) FROM outbox_event INDEXED BY outbox_event_held
    WHERE status = 'PROCESSING' AND stream = :stream AND priority IN (0, 1, 2) AND locked_until <= :now)
SELECT (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_ready WHERE status = 'PENDING' AND stream = :stream)
           + expired.number,
       (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_held WHERE status = 'PROCESSING' AND stream = :stream)
           - expired.number,
       (SELECT count(*) FROM outbox_event INDEXED BY outbox_event_dead WHERE status = 'DEAD' AND stream = :stream),
       (SELECT min(ready.at) FROM ready)
FROM expired
