-- How much there is to learn a model from: rounds of ten minutes, newest first.
--
-- :param since DateTime64(3) = -7d  arrived at or after
-- :param limit UInt32 = 50  rows at most
SELECT
    min(arrived) AS first, pool, worker_fingerprint, count() AS requests, countIf(censored) AS cut_short, uniqExact(run) AS minutes,
    round(quantileIf(0.5)(log(e2e_ns / physics_ns), NOT censored), 4) AS log_ratio_p50,
    round(quantileIf(0.95)(log(e2e_ns / physics_ns), NOT censored), 4) AS log_ratio_p95
FROM traces
WHERE arrived >= {since:DateTime64(3)} AND physics_ns > 0
GROUP BY round, pool, worker_fingerprint
ORDER BY first DESC, pool, worker_fingerprint
LIMIT {limit:UInt32}
