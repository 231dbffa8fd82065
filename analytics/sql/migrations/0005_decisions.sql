-- What was expected of a request when it arrived, and what decided on it: of admitted and refused.
--
-- Writers name the columns that they insert: one of before this migration goes on, and leaves them empty.
ALTER TABLE events
    ADD COLUMN IF NOT EXISTS decision LowCardinality(String) COMMENT 'rule that decided on the request; empty: none did',
    ADD COLUMN IF NOT EXISTS artifact LowCardinality(String) COMMENT 'SHA-256 of the model that predicted, or that the event is of; empty: the physics alone',
    ADD COLUMN IF NOT EXISTS ttft_budget_ns Int64 COMMENT 'objective of the first token, from the arrival, ns; 0: none' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS predicted_ns Int64 COMMENT 'median of the end-to-end latency that was expected, ns' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS predicted_ttft_ns Int64 COMMENT 'time to the first token that was expected, ns' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS bound_ns Int64 COMMENT 'what the end-to-end latency stays below with probability bound_level, ns; 0: none was claimed' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS bound_level Float32 COMMENT 'of bound_ns, in (0, 1); 0: none was claimed' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS meet Float32 COMMENT 'probability to meet the objectives, 0 to 1' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS gain Float32 COMMENT 'by how many requests within their objectives the expectation grows' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS cost_ns Int64 COMMENT 'part of a full engine''s time that the request takes, ns' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS lambda Float32 COMMENT 'price of a second of an engine''s time, in requests within their objectives' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS propensity Float32 COMMENT 'probability with which a request in this situation is admitted, in (0, 1]; 0: not known' CODEC(ZSTD(1)),
    ADD COLUMN IF NOT EXISTS physics_ns Int64 COMMENT 'latency that was simulated at the median length, without a model, ns: what features are labelled relative to' CODEC(T64, ZSTD(1)),
    ADD COLUMN IF NOT EXISTS features Array(Float32) COMMENT 'what a model sees of the request, in the order of predictor/feature' CODEC(ZSTD(1));

-- requests of 0004, with what was expected and whether the bound was kept.
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
    anyIf(e.decision, e.decision != '') AS decision,
    anyIf(e.artifact, e.artifact != '') AS artifact,
    nullIf(max(e.ttft_budget_ns), 0) AS ttft_budget_ns,
    nullIf(max(e.predicted_ns), 0) AS predicted_ns,
    nullIf(max(e.bound_ns), 0) AS bound_ns,
    if(bound_ns IS NULL, NULL, max(e.bound_level)) AS bound_level,
    -- Of a bound that has not been passed yet nothing is known before the client has all.
    multiIf(bound_ns IS NULL OR e2e_ns IS NULL, NULL, e2e_ns > bound_ns, false, delivered = 'complete', true, NULL) AS met,
    max(e.request_seq) AS request_seq,
    max(e.ts) AS updated
FROM events AS e
WHERE e.request_id != toUUID('00000000-0000-0000-0000-000000000000')
GROUP BY e.request_id
COMMENT 'Requests, a row each, as far as their events are in the table; _ns columns are null where unknown';;

-- What a model is learned from: one row a request that was admitted with features and has been delivered. All columns are
-- raw: package trainer makes labels of them.
--
-- run and round are what rows are correlated in and what folds are made of: the minute of the arrival since 1970, and ten
-- whole ones of them. worker_fingerprint is of the last worker that had the request; empty if none had, or if its
-- worker_up is not in the table any more.
CREATE OR REPLACE VIEW traces AS
SELECT
    r.*,
    toInt64(intDiv(toUnixTimestamp(arrived), 60)) AS run,
    intDiv(run, 10) AS round,
    w.fingerprint AS worker_fingerprint
FROM
(
    SELECT
        e.request_id AS request_id,
        UUIDv7ToDateTime(e.request_id, 'UTC') AS arrived,
        anyIf(e.pool, e.type = 'admitted') AS pool,
        anyIf(e.tenant, e.type = 'admitted') AS tenant,
        anyIf(e.kind, e.type = 'admitted') AS kind,
        anyIf(e.class, e.type = 'admitted') AS class,
        anyIf(e.artifact, e.type = 'admitted') AS artifact,
        anyIf(e.features, e.type = 'admitted') AS features,
        maxIf(e.physics_ns, e.type = 'admitted') AS physics_ns,
        maxIf(e.propensity, e.type = 'admitted') AS propensity,
        maxIf(e.prompt_tokens, e.type = 'admitted') AS prompt_tokens,
        maxIf(e.max_tokens, e.type = 'admitted') AS max_tokens,
        maxIf(e.output_tokens, e.type = 'delivered') AS output_tokens,
        maxIf(e.e2e_ns, e.type = 'delivered') AS e2e_ns,
        anyIf(e.reason, e.type = 'delivered') AS delivered,
        anyIf(e.message, e.type = 'delivered') AS failure,
        delivered != 'complete' AS censored,
        argMaxIf(e.worker, (e.attempt, e.seq), e.worker != '') AS worker
    FROM events AS e
    WHERE e.type IN ('admitted', 'dispatched', 'delivered')
        AND e.request_id != toUUID('00000000-0000-0000-0000-000000000000')
    GROUP BY e.request_id
    HAVING notEmpty(features) AND countIf(e.type = 'delivered') > 0
) AS r
LEFT JOIN
(
    SELECT worker, argMax(fingerprint, seq) AS fingerprint FROM events WHERE type = 'worker_up' GROUP BY worker
) AS w ON w.worker = r.worker
COMMENT 'What models of latencies are learned from: admitted requests that have ended, a row each';
