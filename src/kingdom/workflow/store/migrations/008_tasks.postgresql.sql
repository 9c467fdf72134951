-- Tasks become rows of their own: a step writes the tasks it changes, not all of its Work. The name of a Work, the names
-- it waits for and its checkpoint become columns: what starts next is found without reading whole works.
-- The functions for JSON refuse an escaped zero byte, which an agent may have said: a noncharacter stands for it.
CREATE TABLE wf_task (
    work_id text NOT NULL,
    id      text NOT NULL,
    rank    integer NOT NULL,
    status  text NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (work_id, id)
);
CREATE INDEX wf_task_open ON wf_task (work_id, rank, id) WHERE status <> 'COMPLETED';
UPDATE wf_work SET body = replace(body, '\u0000', '\ufdd0') WHERE strpos(body, '\u0000') > 0;
INSERT INTO wf_task (work_id, id, rank, status, body)
    SELECT wf_work.id, task.value ->> 'id', (task.value ->> 'order')::integer, task.value ->> 'status',
        replace(task.value::text, '\ufdd0', '\u0000')
    FROM wf_work, json_array_elements(wf_work.body::json -> 'tasks') AS task (value);
ALTER TABLE wf_work ADD COLUMN name text;
ALTER TABLE wf_work ADD COLUMN waits text;
ALTER TABLE wf_work ADD COLUMN checkpoint text;
UPDATE wf_work SET
    name = body::json ->> 'name',
    waits = CASE WHEN json_array_length(body::json -> 'after') > 0 THEN (body::json -> 'after')::text END,
    checkpoint = (
        SELECT point.id FROM wf_checkpoint AS point
        WHERE point.workflow_id = wf_work.workflow_id AND point.status = 'COMPLETE'
            AND point.body::json ->> 'work_id' = wf_work.id
            AND coalesce((point.body::json ->> 'valid')::boolean, true)
        ORDER BY (point.body::json ->> 'number')::bigint DESC LIMIT 1
    );
UPDATE wf_work SET body = (
    SELECT replace(json_object_agg(part.key, part.value)::text, '\ufdd0', '\u0000')
    FROM (
        SELECT key, value FROM json_each(wf_work.body::json) WHERE key NOT IN ('tasks', 'checkpoint_id')
        UNION ALL SELECT 'checkpoint_id', to_json(checkpoint) WHERE checkpoint IS NOT NULL
    ) AS part
);
