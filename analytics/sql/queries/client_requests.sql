-- Requests that a client sent under one X-Request-Id, newest first: retries have one each.
--
-- :param client String required  the client's X-Request-Id
-- :param limit UInt32 = 20  rows at most
SELECT arrived, request_id, tenant, outcome, reason, decision
FROM requests
WHERE request_id IN (SELECT request_id FROM events WHERE client_request_id = {client:String})
ORDER BY arrived DESC, request_id DESC
LIMIT {limit:UInt32}
