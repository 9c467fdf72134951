-- Holds what a worker holds under a new token. A token is the worker's name, a slash and a random part.
UPDATE outbox_event NOT INDEXED
SET locked_by = :token, locked_until = :now + :lease, updated_at = :now
WHERE id IN (SELECT e.id FROM outbox_event AS e INDEXED BY outbox_event_held
             WHERE e.status = 'PROCESSING' AND e.stream = :stream
               AND substr(e.locked_by, 1, length(:worker) + 1) = :worker || '/')
