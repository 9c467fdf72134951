-- Every stream that is declared or has events. The recursive parts jump from stream to stream along an index, so the
-- cost depends on the number of streams only.
WITH RECURSIVE
pending (stream) AS (
    SELECT min(stream) FROM outbox_event INDEXED BY outbox_event_ready WHERE status = 'PENDING'
    UNION ALL
    SELECT (SELECT min(e.stream) FROM outbox_event AS e INDEXED BY outbox_event_ready
            WHERE e.status = 'PENDING' AND e.stream > pending.stream)
    FROM pending WHERE pending.stream IS NOT NULL),
held (stream) AS (
    SELECT min(stream) FROM outbox_event INDEXED BY outbox_event_held WHERE status = 'PROCESSING'
    UNION ALL
    SELECT (SELECT min(e.stream) FROM outbox_event AS e INDEXED BY outbox_event_held
            WHERE e.status = 'PROCESSING' AND e.stream > held.stream)
    FROM held WHERE held.stream IS NOT NULL),
dead (stream) AS (
    SELECT min(stream) FROM outbox_event INDEXED BY outbox_event_dead WHERE status = 'DEAD'
    UNION ALL
    SELECT (SELECT min(e.stream) FROM outbox_event AS e INDEXED BY outbox_event_dead
            WHERE e.status = 'DEAD' AND e.stream > dead.stream)
    FROM dead WHERE dead.stream IS NOT NULL),
done (stream) AS (
    SELECT min(stream) FROM outbox_event INDEXED BY outbox_event_done WHERE status = 'DONE'
    UNION ALL
    SELECT (SELECT min(e.stream) FROM outbox_event AS e INDEXED BY outbox_event_done
            WHERE e.status = 'DONE' AND e.stream > done.stream)
    FROM done WHERE done.stream IS NOT NULL)
SELECT stream FROM (
    SELECT stream FROM outbox_stream UNION SELECT stream FROM pending UNION SELECT stream FROM held
    UNION SELECT stream FROM dead UNION SELECT stream FROM done)
WHERE stream IS NOT NULL
ORDER BY stream
