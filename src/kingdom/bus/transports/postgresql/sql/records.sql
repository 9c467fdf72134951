SELECT e.* FROM outbox_event e WHERE e.id = ANY ($1::bigint[]) ORDER BY e.priority, e.next_retry_at, e.id
