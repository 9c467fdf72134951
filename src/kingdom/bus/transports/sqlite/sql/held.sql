-- The deliveries (row ids by token) that are still held under their token.
SELECT claim.key, json_group_array(e.id), max(e.ordering_key IS NOT NULL)
FROM json_each(:claims) AS claim
CROSS JOIN json_each(claim.value) AS held
CROSS JOIN outbox_event AS e ON e.id = held.value
WHERE e.locked_by = claim.key AND e.status = 'PROCESSING'
GROUP BY claim.key
