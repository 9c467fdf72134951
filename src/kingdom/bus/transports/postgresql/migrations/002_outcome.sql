-- How an event ended that is DONE, for streams of documents that have more than one good end; and the form of those
-- documents, as JSON. Both are NULL for all else, and a column that is NULL takes no room in a row.
ALTER TABLE outbox_event ADD COLUMN outcome text;
ALTER TABLE outbox_stream ADD COLUMN document json;
