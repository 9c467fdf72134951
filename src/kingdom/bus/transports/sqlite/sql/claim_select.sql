-- What a claim takes, as one row: the ids, what is known of each event, and their envelopes; and first of all whether
-- there is something to be buried before (SPENT stands for claim_spent.sql).
--
-- One row, because Python's driver gives up the interpreter lock at each row: beside a busy event loop, 500 rows would
-- cost 500 waits for it. Envelopes are joined by a character that JSON text cannot contain.
--
-- TERMS stands for claim_pending.sql, once for each type and priority, and claim_expired.sql, once for each priority,
-- with UNION ALL between them. Each comes in order and SQLite merges them, so that no more of what waits is read than
-- is taken. Rejected: one index by time with the type as a filter, which reads every event that waits for somebody
-- else (40 ms for 100,000 of them).
SELECT EXISTS (SPENT),
       json_group_array(e.id),
       json_group_array(json_array(
           e.priority, CAST(chosen.ready_at * 1000000 AS INTEGER), e.id, e.attempt_count + 1,
           e.aggregate_type, e.aggregate_id)),
       group_concat(e.payload_json, char(30))
FROM (TERMS ORDER BY 1, 2, 3 LIMIT :limit) AS chosen
CROSS JOIN outbox_event AS e ON e.id = chosen.id
