-- The server's clock in microseconds: below 2^53, so a double holds it exactly.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
