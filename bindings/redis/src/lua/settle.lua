-- One key.
local granted, level = settle(KEYS[1], 0)
if not granted then
  return redis.error_reply('TOLLGATE ' .. KEYS[1] .. ': ' .. level)
end
return {granted, level}
