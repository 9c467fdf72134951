-- Runs just before the commit: setting many ordering keys may have taken a while, and a concurrent declare must know how
-- recent the change is.
UPDATE outbox_stream SET changed_at = clock_timestamp() WHERE stream = $1
