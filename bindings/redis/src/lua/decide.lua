-- Accepts decisions of operators, all of a call in one step. Each has a stamp,
-- which says which of two decisions about one agent is the later one, and a
-- place in the order in which nodes read them. A new one gets both here; one
-- that a node puts back, after the server has lost it, keeps its stamp.
--
-- Stamps and places are microseconds of the server's clock, made to grow: they
-- are below 2^52, so doubles are exact. `sum` is that of the stamps of all
-- decisions that are not removals, modulo 2^52.
local decisions, order, head, gone, pushed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local number, lives, most = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local MODULUS = 4503599627370496
local function text(n)
  return string.format('%.0f', n)
end
local function read(name)
  return tonumber(redis.call('HGET', head, name) or '0')
end
local born = redis.call('HGET', head, 'born')
local before, sum, live, horizon = read('place'), read('sum'), read('live'), read('horizon')
-- A key of another type is an error here, before anything is written.
redis.call('ZCARD', order)
redis.call('ZCARD', gone)
redis.call('HGET', decisions, '')
local last, accepted = string.match(redis.call('GET', pushed) or '', '^(%d+) (%d+)$')
if number > 0 and tonumber(last or '0') >= number then
  -- Sent again, after its answer was lost: once is enough. The stamp is the one that it got.
  return {0, text(before), accepted, born or '', text(before), text(sum), text(live), text(horizon)}
end

local place = before + 1
if now < MODULUS then
  place = math.max(place, now)
end
for i = 5, #ARGV, 4 do
  place = math.max(place, tonumber(ARGV[i + 2]))
end
local written = 0
for i = 5, #ARGV, 4 do
  local field, is_live, stamp, sealed = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  local known, was_live = 0, '0'
  local at, was = string.match(redis.call('HGET', decisions, field) or '', '^(%d+) ([01]) ')
  if at and #at <= 16 then
    known, was_live = tonumber(at), was
  end
  local is_new = stamp == 0
  if is_new then
    stamp = place
  end
  -- A removal up to the horizon was forgotten on purpose.
  if is_new or stamp > known and (is_live == '1' or stamp > horizon) then
    redis.call('HSET', decisions, field, text(stamp) .. ' ' .. is_live .. ' ' .. sealed)
    redis.call('ZADD', order, text(place), field)
    if was_live == '1' then
      sum, live = (sum - known + MODULUS) % MODULUS, live - 1
    end
    if is_live == '1' then
      sum, live = (sum + stamp) % MODULUS, live + 1
      redis.call('ZREM', gone, field)
    else
      redis.call('ZADD', gone, text(stamp), field)
    end
    written = written + 1
  end
end

-- Removals that are old, or too many, are forgotten; the horizon is the last of them.
local old = redis.call('ZRANGEBYSCORE', gone, '-inf', text(now - lives), 'WITHSCORES', 'LIMIT', 0, 64)
local excess = redis.call('ZCARD', gone) - most
if #old == 0 and excess > 0 then
  old = redis.call('ZRANGEBYSCORE', gone, '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, math.min(excess, 512))
end
for i = 1, #old, 2 do
  redis.call('HDEL', decisions, old[i])
  redis.call('ZREM', order, old[i])
  redis.call('ZREM', gone, old[i])
  horizon = math.max(horizon, tonumber(old[i + 1]))
end

if written == 0 then
  place = before
end
born = born or ARGV[1]
redis.call('HSET', head, 'born', born, 'place', text(place), 'sum', text(sum), 'live', text(live), 'horizon', text(horizon))
if number > 0 then
  -- A node that is away for longer than a month has other troubles.
  redis.call('SET', pushed, text(number) .. ' ' .. text(place), 'EX', 2592000)
end
return {1, text(before), text(place), born, text(place), text(sum), text(live), text(horizon)}
