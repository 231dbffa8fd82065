-- Requests without an end, oldest first: running now, or lost.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param limit UInt32 = 50  rows at most
SELECT arrived, request_id, tenant, model, ingress, worker, attempts, cancel_reason, delivered, updated
FROM requests
WHERE arrived >= {since:DateTime64(3)} AND outcome = 'in_flight'
ORDER BY arrived, request_id
LIMIT {limit:UInt32}
