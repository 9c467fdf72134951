-- The dead events of a stream with a type and an error code, if given.
SELECT json_group_array(id)
FROM outbox_event INDEXED BY outbox_event_dead
WHERE status = 'DEAD' AND stream = :stream
  AND (:event_type IS NULL OR event_type = :event_type)
  AND (:error_code IS NULL OR last_error_code = :error_code)
