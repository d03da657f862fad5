-- Sliding window counter. Two STRINGs "start:count": windows with an even and
-- with an odd number take turns.
local STRIDE, WIDTH, STRINGS = 5, 3, false
local function read(key)
  local v = redis.call('GET', key)
  if not v then return 0, 0 end
  local at, count = string.match(v, '^(%d+):(%d+)$')
  return tonumber(at), tonumber(count)
end
local function step(KEYS, k, item, n, cap, num, w, bound, write)
  local at, count = {}, {}
  at[0], count[0] = read(KEYS[k + 1])
  at[1], count[1] = read(KEYS[k + 2])
  if not at[0] or not at[1] then return BROKEN end
  local function counted(i, start)
    if at[i] == start then return count[i] end
    return 0
  end

  local eff, rebased = now, false
  local newest = max(at[0], at[1])
  if newest > now then
    if newest - now <= w then
      eff = newest
    else
      rebased = true
      local i = floor(now / w) + 1
      eff = i * w
      local new = counted(0, newest) + counted(1, newest)
      local old = counted(0, newest - w) + counted(1, newest - w)
      at[i % 2], count[i % 2] = i * w, new
      at[(i + 1) % 2], count[(i + 1) % 2] = (i - 1) * w, old
    end
  end
  local i = floor(eff / w)
  local this, other = i % 2, (i + 1) % 2
  local start = i * w
  local left = w - (eff - start)
  local ahead = eff - now
  local most = floor(9007199254740991 / w)
  local cur = counted(this, start)
  local prev = min(counted(other, start - w), most)
  local room = cap - n - cur

  local allowed, retry = 0, 0
  if room >= 0 and prev * left <= room * w then
    allowed = 1
    cur = cur + n
  elseif room >= 0 then
    retry = ahead + left - floor(room * w / prev)
  else
    retry = ahead + left + w - floor((cap - n) * w / min(cur, most))
  end
  local reset = 0
  if cur > 0 then
    reset = ahead + left + w
  elseif prev > 0 then
    reset = ahead + left
  end
  if write and (allowed == 1 or rebased) then
    redis.call('SET', KEYS[k + 1 + this], window(start, cur), 'PX', ttl(ahead + left + w))
    if rebased then
      redis.call('SET', KEYS[k + 1 + other], window(at[other], count[other]), 'PX', ttl(ahead + left))
    end
  end
  return allowed, max(0, cap - cur - ceil(prev * left / w)), retry, reset, 0
end
