-- Many keys: two answers each. A key whose value is not ours spoils its own
-- answer alone, which is -1 and the reason; the others are settled.
local reply = {}
for i = 1, #KEYS do
  local granted, level = settle(KEYS[i], 9 * (i - 1))
  reply[2 * i - 1] = granted or -1
  reply[2 * i] = granted and level or KEYS[i] .. ': ' .. level
end
return reply
