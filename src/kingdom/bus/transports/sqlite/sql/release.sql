-- Returns to PENDING as if never claimed: with the old position, and the attempt is not counted.
UPDATE outbox_event NOT INDEXED
SET status = 'PENDING', attempt_count = max(attempt_count - 1, 0), locked_by = NULL, locked_until = NULL,
    updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids)) AND status = 'PROCESSING'
