-- Renews the shards that this relay ($2) holds and should hold, takes those that are free, and gives up those that
-- another relay should hold: shards are dealt out in turn to the relays that take part.
WITH member AS (
    SELECT m.holder, row_number() OVER (ORDER BY m.holder) - 1 AS rank, count(*) OVER () AS members
    FROM outbox_relay_member m WHERE m.stream = $1 AND m.until > clock_timestamp()
), share AS MATERIALIZED (
    SELECT r.shard, r.shard % member.members = member.rank AS mine
    FROM outbox_relay r CROSS JOIN member
    WHERE r.stream = $1 AND member.holder = $2
), changed AS (
    UPDATE outbox_relay r
    SET holder = CASE WHEN share.mine THEN $2 END,
        until = CASE WHEN share.mine THEN clock_timestamp() + make_interval(secs => $3) END
    FROM share
    WHERE r.stream = $1 AND r.shard = share.shard
      AND (r.holder = $2 OR (share.mine AND (r.holder IS NULL OR r.until <= clock_timestamp())))
    RETURNING r.shard, r.holder
)
SELECT share.shard, changed.holder IS NOT NULL AS held, changed.shard IS NOT NULL AND changed.holder IS NULL AS given_up
FROM share LEFT JOIN changed USING (shard)
WHERE share.mine OR changed.shard IS NOT NULL
ORDER BY share.shard
