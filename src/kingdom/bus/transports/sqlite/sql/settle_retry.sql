UPDATE outbox_event NOT INDEXED
SET status = 'PENDING', next_retry_at = :now + verdict.after, updated_at = :now, locked_by = NULL, locked_until = NULL,
    last_error_code = verdict.code, last_error_message = verdict.message
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS after,
             json_extract(value, '$[2]') AS code, json_extract(value, '$[3]') AS message
      FROM json_each(:verdicts)) AS verdict
WHERE outbox_event.id = verdict.id AND outbox_event.status = 'PROCESSING'
