-- ARGV: now, a nonce, then per item its cost, how many ask for that, cap, num, den,
-- for shaping the largest delay, and, where some must, how much must remain. KEYS: per
-- item its state, and the key that blocks it.
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

local function window(start, count) return string.format('%.0f:%.0f', start, count) end

-- The time to live in ms: until the key is as if never used, at least 1 s. As a
-- number Redis prints it whole.
local function ttl(us) return max(1000, ceil(us / 1000)) end

-- STRINGs that were read in one go; false is one that does not exist, or is no
-- STRING: with GET, SET fails for that instead of replacing it.
local strings = {}

local function get(key)
  local v = strings[key]
  if v == nil then return redis.call('GET', key) end
  return v
end

local function put(key, value, how, ms)
  if strings[key] == false then
    redis.call('SET', key, value, how, ms, 'GET')
  else
    redis.call('SET', key, value, how, ms)
  end
  if strings[key] ~= nil then strings[key] = value end
end

-- A state that is not ours is reported, not guessed at.
local BROKEN = -1
