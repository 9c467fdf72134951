-- What a claim takes, as one row: whether events must go DEAD first (SPENT stands for claim_spent.sql), then the ids,
-- the heads and the envelopes of the events.
--
-- One row, because the driver releases the interpreter lock at each row: beside a busy event loop, 500 rows would
-- cost 500 waits for it. Envelopes are joined by a character that JSON text cannot contain.
--
-- TERMS stands for claim_pending.sql, once for each type and priority, and claim_expired.sql, once for each priority,
-- with UNION ALL between them. Each is sorted and SQLite merges them, so that no more rows are read than are
-- taken. Rejected: one index by time with the type as a filter, which reads every waiting event of other types
-- (40 ms for 100,000 of them).
SELECT EXISTS (SPENT),
       json_group_array(e.id),
       json_group_array(json_array(
           e.priority, CAST(chosen.ready_at * 1000000 AS INTEGER), e.id, e.attempt_count + 1,
           e.aggregate_type, e.aggregate_id)),
       group_concat(e.payload_json, char(30))
FROM (TERMS ORDER BY 1, 2, 3 LIMIT :limit) AS chosen
CROSS JOIN outbox_event AS e ON e.id = chosen.id
