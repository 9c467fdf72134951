UPDATE outbox_event NOT INDEXED
SET status = 'PROCESSING', locked_by = :token, locked_until = :now + :lease, attempt_count = attempt_count + 1,
    last_attempt_at = :now, updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
