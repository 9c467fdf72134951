-- The order of a workflow's checkpoints is a number counted in the transaction that finishes one. Those there are already
-- get theirs by the events that told of them; copies in a fork have no event, and come first.
UPDATE wf_checkpoint SET body = jsonb_set(wf_checkpoint.body::jsonb, '{number}', to_jsonb(counted.place))::text
FROM (
    SELECT point.id, row_number() OVER (
        PARTITION BY point.workflow_id ORDER BY coalesce(event.position, 0), point.id
    ) AS place
    FROM wf_checkpoint AS point LEFT JOIN wf_event AS event
        ON event.type = 'CheckpointCreated' AND event.payload::json ->> 'checkpointId' = point.id
    WHERE point.status = 'COMPLETE'
) AS counted
WHERE counted.id = wf_checkpoint.id;
INSERT INTO wf_counter (name, last)
    SELECT workflow_id || '/checkpoints', count(*) FROM wf_checkpoint WHERE status = 'COMPLETE' GROUP BY workflow_id;
