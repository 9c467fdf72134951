UPDATE outbox_event NOT INDEXED
SET locked_until = :now + :lease, updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
