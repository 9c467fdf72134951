UPDATE outbox_event e
SET locked_until = now() + make_interval(secs => $3)
FROM unnest($1::bigint[], $2::text[]) AS lease (id, token)
WHERE e.id = lease.id AND e.locked_by = lease.token AND e.status = 'PROCESSING'
RETURNING e.id
