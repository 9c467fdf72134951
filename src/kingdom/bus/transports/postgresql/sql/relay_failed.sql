-- Writes down why rows could not be relayed. Those for which no repetition helps ($5) go DEAD.
WITH lease AS MATERIALIZED (
    SELECT r.shard FROM outbox_relay r
    WHERE r.stream = $1 AND r.holder = $2 AND r.until > clock_timestamp() AND r.shard = ANY ($3::integer[])
    FOR SHARE
)
UPDATE outbox_event e
SET status = CASE WHEN failed.for_good THEN 'DEAD' ELSE 'PENDING' END, finished = failed.for_good,
    dead = failed.for_good, held_key = NULL, processed_at = CASE WHEN failed.for_good THEN now() END, updated_at = now(),
    locked_by = NULL, locked_until = NULL, attempt_count = e.attempt_count + 1, last_attempt_at = now(),
    last_error_code = failed.code, last_error_message = failed.message
FROM unnest($4::bigint[], $5::boolean[], $6::text[], $7::text[]) AS failed (id, for_good, code, message)
WHERE e.id = failed.id AND NOT e.finished
  AND abs(hashtext(coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '')) % 16)
      IN (SELECT lease.shard FROM lease)
RETURNING e.id
