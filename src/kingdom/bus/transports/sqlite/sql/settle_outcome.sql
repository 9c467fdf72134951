-- settle_done.sql for events with an outcome.
UPDATE outbox_event NOT INDEXED
SET status = 'DONE', processed_at = :now, updated_at = :now, locked_by = NULL, locked_until = NULL,
    outcome = verdict.outcome
FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS outcome
      FROM json_each(:verdicts)) AS verdict
WHERE outbox_event.id = verdict.id AND outbox_event.status = 'PROCESSING'
