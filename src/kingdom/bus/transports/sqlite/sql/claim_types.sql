-- The types of the waiting events of a stream, found by jumping from one to the next along the index.
WITH RECURSIVE waiting (type) AS (
    SELECT min(event_type) FROM outbox_event INDEXED BY outbox_event_ready
    WHERE status = 'PENDING' AND stream = :stream AND blocked = 0
    UNION ALL
    SELECT (SELECT min(e.event_type) FROM outbox_event AS e INDEXED BY outbox_event_ready
            WHERE e.status = 'PENDING' AND e.stream = :stream AND e.blocked = 0 AND e.event_type > waiting.type)
    FROM waiting WHERE waiting.type IS NOT NULL)
SELECT json_group_array(type) FROM waiting WHERE type IS NOT NULL
