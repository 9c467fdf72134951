-- Where several streams have an id, the one that was published first.
SELECT DISTINCT ON (e.event_id) e.* FROM outbox_event e WHERE e.event_id = ANY ($1::text[]) ORDER BY e.event_id, e.id
