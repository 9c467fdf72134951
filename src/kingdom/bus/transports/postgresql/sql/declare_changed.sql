-- The last thing before the commit: giving many events their place may have taken a while, and whoever declares the same
-- meanwhile shall know how fresh it is.
UPDATE outbox_stream SET changed_at = clock_timestamp() WHERE stream = $1
