-- When a stream became ordered, or ceased to be: transactions that were open by then may still bring in events that were
-- given their place, or none, by what they saw. NULL: long ago.
ALTER TABLE outbox_stream ADD COLUMN changed_at timestamptz;
