-- Where the time of finished requests goes, by model and class: quantiles of each part, in milliseconds.
--
-- queue: in the scheduler. prefill and decode: in the worker. ttft, e2e, tpot (time per output token after the first):
-- from arrival, as the client saw them.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    model, class, part, count() AS requests,
    round(quantileExact(0.5)(ns) / 1e6, 3) AS p50_ms,
    round(quantileExact(0.9)(ns) / 1e6, 3) AS p90_ms,
    round(quantileExact(0.99)(ns) / 1e6, 3) AS p99_ms,
    round(max(ns) / 1e6, 3) AS max_ms
FROM requests
ARRAY JOIN
    ['queue', 'prefill', 'decode', 'ttft', 'tpot', 'e2e'] AS part,
    [toFloat64(queue_ns), toFloat64(prefill_ns), toFloat64(decode_ns), toFloat64(ttft_ns), tpot_ns, toFloat64(e2e_ns)] AS ns
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)} AND outcome = 'finished' AND ns IS NOT NULL
GROUP BY model, class, part
ORDER BY model, class, indexOf(['queue', 'prefill', 'decode', 'ttft', 'tpot', 'e2e'], part)
