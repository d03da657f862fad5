-- Sliding window log. SORTED SET: a member per admitted unit, score = its time. A block
-- is the member "block:length", score = its end below 0. Of the units that have left
-- the window each step takes out some: no call is long for what is over.
local SWEEP, PIECE = 100, 1000 -- unpack is bounded
local total, stored, adds, newest, from, ended, ahead, stepped

local function load(key, w)
  s.at, s.birth, s.till, s.length, s.changed = key, '0', 0, 0, false
  total, stored, adds, newest, ended, ahead, stepped = redis.call('ZCARD', key), 0, 0, 0, 0, false, false
  if total == 0 then return true end
  from = '(' .. int(now - w)
  stored = redis.call('ZCOUNT', key, from, '+inf')
  if stored > 0 then newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] + 0 end
  if total > stored then
    local block = redis.call('ZRANGEBYSCORE', key, '-inf', '(0', 'WITHSCORES')
    if block[1] then
      s.length = match(block[1], '^block:(%d+)$')
      if not s.length then return false end
      s.length, s.till = s.length + 0, -block[2]
      ended = s.till
    end
  end
  return true
end

-- The time of the k-th oldest unit, among those that will be added.
local function nth(k, rebased)
  if adds > 0 then
    local before = newest > now and redis.call('ZCOUNT', s.at, from, today()) or stored
    if k > before + adds then
      k = k - adds
    elseif k > before then
      return now
    end
  end
  local t = redis.call('ZREVRANGE', s.at, stored - k, stored - k, 'WITHSCORES')[2] + 0
  return rebased and min(t, now) or t
end

local function step(n, write, cap, num, w)
  local count, last = stored + adds, newest
  local rebased = newest - now > w
  local allowed, retry = 0, 0
  if rebased then last = now end
  if count + n <= cap then
    allowed = 1
    if n > 0 then count, last = count + n, max(last, now) end
  else
    retry = nth(count + n - cap, rebased or ahead) + w - now
  end
  if write and (allowed == 1 or rebased) then
    adds, newest, ahead, stepped, s.changed = count - stored, last, rebased or ahead, true, true
  end
  return allowed, max(0, cap - count), retry, count > 0 and last + w - now or 0, 0
end

local function save(key, reset, item)
  if ended ~= 0 and (ended ~= s.till or s.till <= now) then
    write('ZREMRANGEBYSCORE', key, '-inf', '(0')
    total = total - 1
  end
  local blocks = ended == s.till and s.till > now and 1 or 0
  local old = total - stored - blocks
  if stepped and old > 0 then write('ZREMRANGEBYRANK', key, blocks, blocks + min(old, adds + SWEEP) - 1) end
  local time = today()
  if ahead then
    local members = redis.call('ZRANGEBYSCORE', key, '(' .. time, '+inf')
    for i = 1, #members do write('ZADD', key, 'XX', time, members[i]) end
  end
  local name = ARGV[2] .. ':' .. int(item) .. ':'
  for first = 1, adds, PIECE do
    local members = {}
    for i = first, min(adds, first + PIECE - 1) do
      members[#members + 1] = time
      members[#members + 1] = name .. i
    end
    write('ZADD', key, unpack(members))
  end
  if s.till > now and ended ~= s.till then write('ZADD', key, int(-s.till), 'block:' .. int(s.length)) end
  write('PEXPIRE', key, max(1000, ceil(max(reset, s.till - now) / 1000)))
end

-- back
local function back(n, taken, of, cap, num, w, name, first)
  if not taken then
    n = min(n, stored)
    return n > 0 and redis.call('ZREMRANGEBYRANK', s.at, -n, -1) or 0
  end
  if taken <= now - w then return 0 end
  local gone = 0
  for piece = first, first + n - 1, PIECE do
    local members = {}
    for i = piece, min(first + n, piece + PIECE) - 1 do members[#members + 1] = name .. ':' .. int(i) end
    gone = gone + redis.call('ZREM', s.at, unpack(members))
  end
  return gone
end
