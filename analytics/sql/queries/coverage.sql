-- How many bounds were kept, by model, class and level: want kept_ratio to be at least bound_level. Requests whose client
-- left before the bound are in neither count; if all of them had been late, kept_least_ratio would be it.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    if(artifact = '', 'physics', substring(artifact, 1, 12)) AS model, class, bound_level, count() AS bounds,
    countIf(met = true) AS kept, countIf(met = false) AS missed,
    round(kept / nullIf(kept + missed, 0), 4) AS kept_ratio,
    round(kept / nullIf(bounds, 0), 4) AS kept_least_ratio,
    round(quantileIf(0.5)(bound_ns / e2e_ns, delivered = 'complete'), 3) AS bound_by_e2e_p50
FROM requests
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)} AND isNotNull(bound_ns) AND isNotNull(e2e_ns)
GROUP BY model, class, bound_level
ORDER BY bounds DESC, model, class, bound_level
