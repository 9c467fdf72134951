-- Marks rows ($4) as relayed, if their shards are still held by this relay ($2): the lock keeps others from taking the
-- shard until this has committed.
WITH lease AS MATERIALIZED (
    SELECT r.shard FROM outbox_relay r
    WHERE r.stream = $1 AND r.holder = $2 AND r.until > clock_timestamp() AND r.shard = ANY ($3::integer[])
    FOR SHARE
)
UPDATE outbox_event e
SET status = 'DONE', finished = true, dead = false, held_key = NULL, processed_at = now(), updated_at = now(),
    locked_by = NULL, locked_until = NULL, attempt_count = e.attempt_count + 1, last_attempt_at = now()
WHERE e.id = ANY ($4::bigint[]) AND NOT e.finished
  AND abs(hashtext(coalesce(e.aggregate_type, '') || chr(31) || coalesce(e.aggregate_id, '')) % 16)
      IN (SELECT lease.shard FROM lease)
RETURNING e.id
