SELECT state, first_seq, last_seq
FROM projector_positions FINAL
WHERE stream_id = {stream_id:String}
