SELECT seq
FROM events
WHERE stream_id = {stream_id:String}
    AND stored BETWEEN fromUnixTimestamp64Nano({first_stored:Int64}) AND fromUnixTimestamp64Nano({last_stored:Int64})
    AND seq BETWEEN {first_seq:UInt64} AND {last_seq:UInt64}
