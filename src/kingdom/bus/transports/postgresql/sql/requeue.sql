-- Returns DEAD events, and DONE ones given by id, to PENDING. An event that was DONE when its stream became ordered, or
-- stopped being so, gets its ordering key now.
UPDATE outbox_event e
SET status = 'PENDING', finished = false, dead = false, held_key = NULL, attempt_count = 0, next_retry_at = now(),
    updated_at = now(), processed_at = NULL, locked_by = NULL, locked_until = NULL,
    last_error_code = NULL, last_error_message = NULL, outcome = NULL,
    ordering_key = (SELECT coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '')
                    FROM outbox_stream s WHERE s.stream = $1 AND s.ordered)
WHERE e.stream = $1
  AND (e.dead OR (e.finished AND $2::text[] IS NOT NULL))
  AND ($2::text[] IS NULL OR e.event_id = ANY ($2))
  AND ($3::text IS NULL OR e.event_type = $3)
  AND ($4::text IS NULL OR e.last_error_code = $4)
