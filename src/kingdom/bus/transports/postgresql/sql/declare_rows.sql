-- Sets or clears the ordering key of events that were published before the stream was declared, or by a transaction that
-- did not see the declaration.
UPDATE outbox_event e
SET ordering_key = CASE WHEN $2 THEN coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '') END,
    held_key = CASE WHEN $2 AND e.status = 'PROCESSING'
                    THEN coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '') END
WHERE e.stream = $1 AND (NOT e.finished OR e.dead) AND (e.ordering_key IS NOT NULL) <> $2
