INSERT INTO projector_positions (stream_id, state, first_seq, last_seq, instance)
SELECT {stream_id:String}, {state:String}, {first_seq:UInt64}, {last_seq:UInt64}, {instance:String}
