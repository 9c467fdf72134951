-- How an event ended that is DONE, for streams of documents that have more than one good end; and the form of those
-- documents, as JSON.
ALTER TABLE outbox_event ADD COLUMN outcome TEXT;
ALTER TABLE outbox_stream ADD COLUMN document TEXT;
