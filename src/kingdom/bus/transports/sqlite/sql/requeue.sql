-- Returns finished events to PENDING, at their old position in publish order. The ordering key is set again: the stream
-- may have been declared since they finished.
UPDATE outbox_event NOT INDEXED
SET status = 'PENDING', attempt_count = 0, next_retry_at = :now, updated_at = :now, processed_at = NULL,
    locked_by = NULL, locked_until = NULL, last_error_code = NULL, last_error_message = NULL, outcome = NULL,
    ordering_key = CASE WHEN (SELECT s.ordered FROM outbox_stream AS s WHERE s.stream = outbox_event.stream)
                        THEN coalesce(aggregate_type, '') || char(31) || coalesce(aggregate_id, '') END,
    blocked = 0
WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('DEAD', 'DONE')
