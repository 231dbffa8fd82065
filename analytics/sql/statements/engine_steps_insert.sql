INSERT INTO engine_steps
(
    worker, ts, stream_id, seq, stored, step, prefill_tokens, decode_batch, context_tokens, duration_ns, kv_free_pages,
    kv_high_water_pages
)
