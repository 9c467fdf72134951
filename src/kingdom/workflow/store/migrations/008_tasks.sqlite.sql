-- Tasks become rows of their own: a step writes the tasks it changes, not all of its Work. The name of a Work, the names
-- it waits for and its checkpoint become columns: what starts next is found without reading whole works.
CREATE TABLE wf_task (
    work_id text NOT NULL,
    id      text NOT NULL,
    rank    integer NOT NULL,
    status  text NOT NULL,
    body    text NOT NULL,
    PRIMARY KEY (work_id, id)
);
CREATE INDEX wf_task_open ON wf_task (work_id, rank, id) WHERE status <> 'COMPLETED';
INSERT INTO wf_task (work_id, id, rank, status, body)
    SELECT wf_work.id, json_extract(task.value, '$.id'), json_extract(task.value, '$.order'),
        json_extract(task.value, '$.status'), task.value
    FROM wf_work, json_each(wf_work.body, '$.tasks') AS task;
ALTER TABLE wf_work ADD COLUMN name text;
ALTER TABLE wf_work ADD COLUMN waits text;
ALTER TABLE wf_work ADD COLUMN checkpoint text;
UPDATE wf_work SET
    name = json_extract(body, '$.name'),
    waits = CASE WHEN json_array_length(body, '$.after') > 0 THEN json_extract(body, '$.after') END,
    checkpoint = (
        SELECT point.id FROM wf_checkpoint AS point
        WHERE point.workflow_id = wf_work.workflow_id AND point.status = 'COMPLETE'
            AND json_extract(point.body, '$.work_id') = wf_work.id
            AND coalesce(json_extract(point.body, '$.valid'), 1)
        ORDER BY json_extract(point.body, '$.number') DESC LIMIT 1
    );
UPDATE wf_work SET body = json_remove(json_set(body, '$.checkpoint_id', checkpoint), '$.tasks');
