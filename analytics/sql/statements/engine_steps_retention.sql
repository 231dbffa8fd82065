ALTER TABLE engine_steps MODIFY TTL toDateTime(stored) + toIntervalDay({days:UInt32})
