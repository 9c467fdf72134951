-- A page of all events of a stream in publish order: after the row $2, changed in the last $3 seconds (NULL: any time),
-- with an id like $4. Along the primary key: for operators, not worth an index that every event would pay for.
SELECT e.*
FROM outbox_event e
WHERE e.stream = $1 AND e.id > $2
  AND ($3::float8 IS NULL OR e.updated_at >= now() - make_interval(secs => $3))
  AND e.event_id LIKE $4
ORDER BY e.id
LIMIT $5
