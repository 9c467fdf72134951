-- What a workflow is found by: its name and issue key, in small letters. A search reads the index, not the rows.
-- Both stand at the beginning of the documents there are already.
ALTER TABLE wf_workflow ADD COLUMN label text;
UPDATE wf_workflow SET label = lower(substr(body, 1, 600));
CREATE INDEX wf_workflow_by_label ON wf_workflow (id, label);
