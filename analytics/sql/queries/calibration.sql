-- How far predictions are off, by hour and model: quantiles of the logarithm of latency by prediction, of complete answers. 0 is
-- right, 0.1 about a tenth too slow.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    toStartOfHour(arrived) AS hour, if(artifact = '', 'physics', substring(artifact, 1, 12)) AS model, count() AS requests,
    round(quantileExact(0.05)(log(e2e_ns / predicted_ns)), 4) AS log_ratio_p05,
    round(quantileExact(0.5)(log(e2e_ns / predicted_ns)), 4) AS log_ratio_p50,
    round(quantileExact(0.95)(log(e2e_ns / predicted_ns)), 4) AS log_ratio_p95,
    round(quantileExact(0.99)(log(e2e_ns / predicted_ns)), 4) AS log_ratio_p99
FROM requests
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)} AND delivered = 'complete' AND e2e_ns > 0 AND predicted_ns > 0
GROUP BY hour, model
ORDER BY hour DESC, model
