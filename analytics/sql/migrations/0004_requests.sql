-- One row a request. Every aggregate ignores repeated rows, so that it holds before events are merged, without FINAL.
--
-- A worker that was declared lost may write the end of an older attempt: what counts is the end of the last attempt,
-- and of two ends of it the one that names no worker: the scheduler says so only once it has given the worker up.
--
-- Filter on arrived: it is made of request_id, so that the condition reaches the table's indexes.
CREATE OR REPLACE VIEW requests AS
SELECT
    e.request_id AS request_id,
    UUIDv7ToDateTime(e.request_id, 'UTC') AS arrived,
    minOrNullIf(e.ts, e.type = 'received') AS received,
    anyIf(e.client_request_id, e.client_request_id != '') AS client_request_id,
    anyIf(e.tenant, e.tenant != '') AS tenant,
    anyIf(e.pool, e.pool != '') AS pool,
    anyIf(e.model, e.model != '') AS model,
    anyIf(e.ingress, e.ingress != '') AS ingress,
    anyIf(e.kind, e.kind != '') AS kind,
    if(countIf(e.class = 'guaranteed') > 0, 'guaranteed', 'best-effort') AS class,
    max(e.stream) AS stream,
    nullIf(maxIf(e.budget_ns, e.type = 'received'), 0) AS budget_ns,
    if(countIf(e.type IN ('finished', 'failed', 'cancelled', 'refused')) = 0, 'in_flight',
        argMinIf(e.type, (-toInt64(e.attempt), e.worker != '', e.seq), e.type IN ('finished', 'failed', 'cancelled', 'refused'))) AS outcome,
    argMinIf(e.reason, (-toInt64(e.attempt), e.worker != '', e.seq), e.type IN ('finished', 'failed', 'cancelled', 'refused')) AS reason,
    argMinIf(e.message, (-toInt64(e.attempt), e.worker != '', e.seq), e.type IN ('finished', 'failed', 'cancelled', 'refused')) AS message,
    anyIf(e.reason, e.type = 'cancel_requested') AS cancel_reason,
    anyIf(e.reason, e.type = 'delivered') AS delivered,
    max(e.attempt) AS attempts,
    argMaxIf(e.worker, (e.attempt, e.seq), e.worker != '') AS worker,
    uniqExactIf((e.attempt, e.ordinal), e.type = 'preempted') AS preemptions,
    max(e.prompt_tokens) AS prompt_tokens,
    argMaxIf(e.cached_tokens, (e.attempt, e.seq), e.type IN ('prefill_started', 'finished')) AS cached_tokens,
    max(e.max_tokens) AS max_tokens,
    greatest(
        argMinIf(e.output_tokens, (-toInt64(e.attempt), e.worker != '', e.seq), e.type IN ('finished', 'failed', 'cancelled')),
        maxIf(e.output_tokens, e.type = 'delivered')) AS output_tokens,
    nullIf(argMaxIf(e.queue_ns, (e.attempt, e.seq), e.type = 'dispatched'), 0) AS queue_ns,
    nullIf(argMaxIf(e.prefill_ns, (e.attempt, e.seq), e.prefill_ns > 0), 0) AS prefill_ns,
    nullIf(argMaxIf(e.decode_ns, (e.attempt, e.seq), e.decode_ns > 0), 0) AS decode_ns,
    nullIf(maxIf(e.ttft_ns, e.type = 'delivered'), 0) AS ttft_ns,
    nullIf(maxIf(e.e2e_ns, e.type = 'delivered'), 0) AS e2e_ns,
    if(output_tokens > 1, (e2e_ns - ttft_ns) / (output_tokens - 1), NULL) AS tpot_ns,
    nullIf(maxIf(e.retry_after_ns, e.type = 'refused'), 0) AS retry_after_ns,
    max(e.request_seq) AS request_seq,
    max(e.ts) AS updated
FROM events AS e
WHERE e.request_id != toUUID('00000000-0000-0000-0000-000000000000')
GROUP BY e.request_id
COMMENT 'Requests, a row each, as far as their events are in the table; _ns columns are null where unknown';
