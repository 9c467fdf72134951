-- The attempt of the Work or Task that an event tells of. Events from before have none.
ALTER TABLE wf_event ADD COLUMN attempt integer;
