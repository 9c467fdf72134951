-- Settles as DONE what is held under one token.
UPDATE outbox_event NOT INDEXED
SET status = 'DONE', processed_at = :now, updated_at = :now, locked_by = NULL, locked_until = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'PROCESSING' AND locked_by = :token
