-- SPENT stands for claim_spent.sql.
UPDATE outbox_event NOT INDEXED
SET status = 'DEAD', processed_at = :now, updated_at = :now, locked_by = NULL, locked_until = NULL,
    last_error_code = 'LEASE_EXPIRED',
    last_error_message = 'the lease of attempt ' || attempt_count || ' ended without a verdict (' || locked_by || ')'
WHERE id IN (SPENT)
