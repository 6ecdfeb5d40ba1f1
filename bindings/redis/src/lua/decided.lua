-- The decisions behind a place, in their order, about as many as asked for: those
-- of one call have one place, and are not torn apart.
local decisions, order, head = KEYS[1], KEYS[2], KEYS[3]
local most = tonumber(ARGV[2])
local found = redis.call('ZRANGEBYSCORE', order, '(' .. ARGV[1], '+inf', 'WITHSCORES', 'LIMIT', 0, most)
if #found == 2 * most then
  local last = found[#found]
  if found[2] == last then
    found = redis.call('ZRANGEBYSCORE', order, last, last, 'WITHSCORES')
  else
    while found[#found] == last do
      found[#found] = nil
      found[#found] = nil
    end
  end
end
local entries = {}
for i = 1, #found, 2 do
  entries[#entries + 1] = found[i]
  entries[#entries + 1] = string.format('%.0f', tonumber(found[i + 1]))
  entries[#entries + 1] = redis.call('HGET', decisions, found[i]) or ''
end
local about = redis.call('HMGET', head, 'born', 'place', 'sum', 'live', 'horizon')
return {about[1] or '', about[2] or '0', about[3] or '0', about[4] or '0', about[5] or '0', entries}
