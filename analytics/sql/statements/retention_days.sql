-- 0 where the table has no TTL. The server prints the bound number within a cast.
SELECT toUInt32OrZero(extract(create_table_query, 'TTL toDateTime\\(stored\\) \\+ toIntervalDay\\(\\D*(\\d+)'))
FROM system.tables
WHERE database = currentDatabase() AND name = {table:String}
