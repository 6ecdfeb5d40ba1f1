-- How many tokens of what is left a node may take: what it wants, but only a
-- share of what is left, and `min` if that is more. Nothing unless `min` is left.
local function grant(left, min, want, share)
  if left < min then
    return 0
  end
  return math.min(want, math.max(min, math.floor(left / share)))
end

-- What a value that no version of this script wrote is answered with. Taking it
-- for a full lane would mint tokens.
local foreign = 'its value was not written by tollgate; delete the key, or give tollgate a server of its own'
