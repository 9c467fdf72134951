-- The streams that have unfinished events: jumps from one to the next along the index.
WITH RECURSIVE found AS (
    (SELECT e.stream FROM outbox_event e WHERE NOT e.finished ORDER BY e.stream LIMIT 1)
    UNION ALL
    SELECT (SELECT e.stream FROM outbox_event e WHERE NOT e.finished AND e.stream > found.stream ORDER BY e.stream LIMIT 1)
    FROM found WHERE found.stream IS NOT NULL
)
SELECT found.stream FROM found WHERE found.stream IS NOT NULL
