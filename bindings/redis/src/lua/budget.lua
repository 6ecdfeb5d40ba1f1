-- One budget in one calendar window, which is part of the key. Its value is how
-- much is used, and a budget of which nothing is used has no key. No clock is
-- read: the node says how long the window goes on.
local function settle(key, skip)
  local expiry_ms, capacity = tonumber(ARGV[skip + 1]), tonumber(ARGV[skip + 2])
  local owed, give = tonumber(ARGV[skip + 3]), tonumber(ARGV[skip + 4])
  local min, want, share = tonumber(ARGV[skip + 5]), tonumber(ARGV[skip + 6]), tonumber(ARGV[skip + 7])
  local over, floor = tonumber(ARGV[skip + 8]), tonumber(ARGV[skip + 9])

  local used = 0
  local value = redis.pcall('GET', key)
  if value then
    if type(value) == 'table' then
      return nil, value.err
    end
    if #value > 16 or not string.find(value, '^%d+$') then
      return nil, foreign
    end
    used = tonumber(value)
  end
  local before = used

  used = math.max(used - give, 0)
  local most = math.max(used, capacity + over)
  used = math.min(math.max(used + owed, floor), most)
  local granted = grant(capacity - used, min, want, share)
  used = used + granted

  if used ~= before then
    if used > 0 then
      redis.call('SET', key, string.format('%.0f', used), 'PX', expiry_ms)
    else
      redis.call('DEL', key)
    end
  end
  return granted, used
end
