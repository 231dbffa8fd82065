-- Requests and tokens by interval of arrival.
--
-- :param since DateTime64(3) = -1h  arrived at or after
-- :param step UInt32 = 60  length of an interval, seconds
SELECT
    toStartOfInterval(arrived, toIntervalSecond({step:UInt32})) AS interval_start,
    model,
    count() AS requests,
    round(count() / {step:UInt32}, 3) AS requests_per_second,
    round(sum(prompt_tokens) / {step:UInt32}, 1) AS prompt_tokens_per_second,
    round(sum(output_tokens) / {step:UInt32}, 1) AS output_tokens_per_second,
    if(sum(prompt_tokens) = 0, 0, round(sum(cached_tokens) / sum(prompt_tokens), 4)) AS cached_ratio
FROM requests
WHERE arrived >= {since:DateTime64(3)}
GROUP BY interval_start, model
ORDER BY interval_start, model
