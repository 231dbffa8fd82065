-- The latest requests, newest first: what became of each and how long it took.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param limit UInt32 = 20  rows at most
SELECT
    arrived, request_id, tenant, model, class, outcome, reason, attempts, prompt_tokens, cached_tokens, output_tokens,
    round(queue_ns / 1e6, 3) AS queue_ms,
    round(ttft_ns / 1e6, 3) AS ttft_ms,
    round(e2e_ns / 1e6, 3) AS e2e_ms
FROM requests
WHERE arrived >= {since:DateTime64(3)}
ORDER BY arrived DESC, request_id DESC
LIMIT {limit:UInt32}
