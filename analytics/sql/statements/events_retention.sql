ALTER TABLE events MODIFY TTL toDateTime(stored) + toIntervalDay({days:UInt32})
