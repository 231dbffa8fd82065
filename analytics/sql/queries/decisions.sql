-- What decided on requests, and what became of them.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    decision, class, outcome = 'refused' AS refused, count() AS requests,
    countIf(delivered = 'complete') AS complete,
    round(quantileIf(0.5)(e2e_ns, delivered = 'complete') / 1e6, 3) AS e2e_p50_ms,
    round(quantileIf(0.5)(predicted_ns, isNotNull(predicted_ns)) / 1e6, 3) AS predicted_p50_ms
FROM requests
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)}
GROUP BY decision, class, refused
ORDER BY requests DESC, decision, class, refused
