-- The finished events with these ids.
SELECT json_group_array(e.id)
FROM (SELECT DISTINCT value AS event_id FROM json_each(:event_ids)) AS wanted
CROSS JOIN outbox_event AS e ON e.event_id = wanted.event_id AND e.stream = :stream
WHERE e.status IN ('DEAD', 'DONE')
  AND (:event_type IS NULL OR e.event_type = :event_type)
  AND (:error_code IS NULL OR e.last_error_code = :error_code)
