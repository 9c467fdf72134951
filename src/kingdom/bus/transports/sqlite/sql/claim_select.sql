-- What a claim takes, as one row: the ids, what is known of each event, and their envelopes.
--
-- One row, because Python's driver gives up the interpreter lock at each row: beside a busy event loop, 500 rows would
-- cost 500 waits for it. Envelopes are joined by a character that JSON text cannot contain.
--
-- Each priority is looked up by itself: what is delayed then lies behind the last entry read, never before it.
WITH rank (priority) AS (VALUES (0), (1), (2)),
ready (id, priority, ready_at) AS (
    SELECT e.id, e.priority, e.next_retry_at
    FROM rank CROSS JOIN outbox_event AS e
    WHERE e.id IN (
        SELECT p.id
        FROM outbox_event AS p INDEXED BY outbox_event_ready
        WHERE p.status = 'PENDING' AND p.stream = :stream AND p.blocked = 0 AND p.priority = rank.priority
          AND p.next_retry_at <= :now
          AND (:types IS NULL OR p.event_type IN (SELECT value FROM json_each(:types)))
          AND (p.ordering_key IS NULL OR NOT EXISTS (
              SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
              WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = p.ordering_key
                AND h.locked_until > :now))
        ORDER BY p.next_retry_at, p.id
        LIMIT :limit)
    UNION ALL
    SELECT e.id, e.priority, e.locked_until
    FROM rank CROSS JOIN outbox_event AS e
    WHERE e.id IN (
        SELECT p.id
        FROM outbox_event AS p INDEXED BY outbox_event_held
        WHERE p.status = 'PROCESSING' AND p.stream = :stream AND p.priority = rank.priority AND p.locked_until <= :now
          AND p.blocked = 0
          AND (:types IS NULL OR p.event_type IN (SELECT value FROM json_each(:types)))
          AND (p.ordering_key IS NULL OR NOT EXISTS (
              SELECT 1 FROM outbox_event AS h INDEXED BY outbox_event_order_held
              WHERE h.status = 'PROCESSING' AND h.stream = :stream AND h.ordering_key = p.ordering_key
                AND h.locked_until > :now))
        ORDER BY p.locked_until, p.id
        LIMIT :limit)
),
chosen (id, ready_at) AS (
    SELECT id, ready_at FROM ready ORDER BY priority, ready_at, id LIMIT :limit
)
SELECT json_group_array(e.id),
       json_group_array(json_array(
           e.priority, CAST(chosen.ready_at * 1000000 AS INTEGER), e.id, e.attempt_count + 1,
           e.aggregate_type, e.aggregate_id)),
       group_concat(e.payload_json, char(30))
FROM chosen CROSS JOIN outbox_event AS e ON e.id = chosen.id
