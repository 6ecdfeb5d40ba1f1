-- One bucket. Its value is `WRITTEN:DEBT`: the debt in nanoseconds at the
-- instant, in the server's microseconds, at which it was written. A debt is how
-- long the bucket takes to be full again, and a full bucket has no key.
--
-- Every number below is an integer less than 2^53, so doubles are exact. The
-- node makes sure of it: a depth with its overdraft, and what is owed or given,
-- is less than 2^52 ns each. A quotient of such numbers never rounds up to an
-- integer, so its floor is exact too.
local function settle(key, skip)
  local token, capacity = tonumber(ARGV[skip + 1]), tonumber(ARGV[skip + 2])
  local owed, give = tonumber(ARGV[skip + 3]), tonumber(ARGV[skip + 4])
  local min, want, share = tonumber(ARGV[skip + 5]), tonumber(ARGV[skip + 6]), tonumber(ARGV[skip + 7])
  local over, floor = tonumber(ARGV[skip + 8]), tonumber(ARGV[skip + 9])
  local depth = capacity * token

  local debt, is_behind = 0, false
  local value = redis.pcall('GET', key)
  if value then
    if type(value) == 'table' then
      return nil, value.err
    end
    local at, was = string.match(value, '^(%d+):(%d+)$')
    if not at or #at > 16 or #was > 16 then
      return nil, foreign
    end
    at, debt = tonumber(at), tonumber(was)
    -- A clock that stepped back: no time has passed since the value was written.
    is_behind = now < at
    if not is_behind then
      debt = math.max(debt - (now - at) * 1000, 0)
    end
  end
  local before = debt

  -- Unspent credit, as if it had never been taken.
  debt = math.max(debt - give * token, 0)
  -- What is owed, and what a node knows after a loss: by force, up to the
  -- overdraft. A debt beyond it, written under a larger limit, is not forgotten.
  local most = math.max(debt, depth + over * token)
  debt = math.min(math.max(debt + owed * token, floor), most)
  local granted = grant(math.floor((depth - debt) / token), min, want, share)
  debt = debt + granted * token

  if debt ~= before or is_behind then
    if debt > 0 then
      redis.call('SET', key, string.format('%.0f:%.0f', now, debt), 'PX', math.ceil(debt / 1000000) + 1000)
    else
      redis.call('DEL', key)
    end
  end
  return granted, debt
end
