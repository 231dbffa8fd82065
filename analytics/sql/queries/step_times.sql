-- Duration of engine steps by what was in them: what the cost model of a worker is fitted from.
--
-- :param since DateTime64(3) = -1h  at or after
SELECT
    worker, decode_batch,
    multiIf(prefill_tokens = 0, '0', prefill_tokens <= 64, '1-64', prefill_tokens <= 256, '65-256', '257-') AS prefill,
    count() AS steps,
    round(quantileExact(0.5)(duration_ns) / 1e6, 3) AS p50_ms,
    round(quantileExact(0.99)(duration_ns) / 1e6, 3) AS p99_ms
FROM engine_steps FINAL
WHERE ts >= {since:DateTime64(3)}
GROUP BY worker, decode_batch, prefill
ORDER BY worker, decode_batch, prefill
