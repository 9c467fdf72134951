-- Found by primary key and fenced by the claim's own token.
UPDATE outbox_event e
SET status = 'DONE', processed_at = now(), updated_at = now(), locked_until = NULL
FROM unnest($1::bigint[], $2::text[]) AS verdict (id, token)
WHERE e.id = verdict.id AND e.locked_by = verdict.token AND e.status = 'PROCESSING'
RETURNING e.id
