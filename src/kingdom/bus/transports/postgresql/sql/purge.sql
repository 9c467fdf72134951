-- Deletes a batch along the primary key, so that nothing waits for it and no two purges wait for each other.
-- $4: the id to continue from; $5: the events that stay; $6: the only ones that go, or null. Returns how far it got and how many it deleted.
WITH looked_at AS MATERIALIZED (
    SELECT e.id, e.event_id, e.stream, e.status, e.processed_at
    FROM outbox_event e
    WHERE e.id > $4
    ORDER BY e.id
    LIMIT 5000
), removed AS (
    DELETE FROM outbox_event e
    USING (
        SELECT id FROM looked_at
        WHERE (status = 'DONE' OR ($3 AND status = 'DEAD')) AND processed_at <= now() - make_interval(secs => $1)
          AND ($2::text IS NULL OR stream = $2) AND event_id <> ALL ($5::text[])
          AND ($6::text[] IS NULL OR event_id = ANY ($6::text[]))
        ORDER BY id
    ) AS old
    WHERE e.id = old.id AND (e.status = 'DONE' OR ($3 AND e.status = 'DEAD'))
    RETURNING e.id
)
SELECT (SELECT max(id) FROM looked_at) AS reached, (SELECT count(*) FROM removed) AS removed
