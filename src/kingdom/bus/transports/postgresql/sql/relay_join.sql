-- Says that a relay takes part in a stream for the next $3 seconds.
INSERT INTO outbox_relay_member AS m (stream, holder, until)
VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
ON CONFLICT (stream, holder) DO UPDATE SET until = excluded.until
