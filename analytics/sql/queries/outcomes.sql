-- How requests ended and why.
--
-- :param since DateTime64(3) = -24h  arrived at or after
-- :param until DateTime64(3) = now  arrived before
SELECT
    outcome, reason, class, count() AS requests, round(count() / sum(count()) OVER (), 4) AS share_ratio,
    sum(output_tokens) AS output_tokens
FROM requests
WHERE arrived >= {since:DateTime64(3)} AND arrived < {until:DateTime64(3)}
GROUP BY outcome, reason, class
ORDER BY requests DESC, outcome, reason, class
