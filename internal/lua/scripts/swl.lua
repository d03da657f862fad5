-- Sliding window log. SORTED SET: a member per admitted unit, score = its time. A block
-- is the member "block:length", score = its end below 0. Of the units that have left
-- the window each charge removes some, so that old units make no call long. Replies with
-- three numbers: the units in the window, the time until it is empty, and the time until
-- there is room for the caller that was denied.
local SWEEP, PIECE = 100, 1000 -- unpack is bounded
local ceil, floor, max, min = math.ceil, math.floor, math.max, math.min
local function int(x) return string.format('%.0f', x) end
local w, time = string.match(tail, '^:1:(%d+):') + 0, int(now)
local from = '(' .. int(now - w)

local total, stored, newest, till, length, ended = redis.pcall('ZCARD', key), 0, 0, 0, 0, 0
if type(total) == 'table' then
  if string.find(total.err, 'WRONGTYPE', 1, true) then return 0, 3, 0 end
  redis.call('ZCARD', key)
end
if total > 0 then
  stored = redis.call('ZCOUNT', key, from, '+inf')
  if stored > 0 then newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] + 0 end
  if total > stored then
    local block = redis.call('ZRANGEBYSCORE', key, '-inf', '(0', 'WITHSCORES')
    if block[1] then
      length = string.match(block[1], '^block:(%d+)$')
      if not length then return 0, 3, 0 end
      length, till = length + 0, -block[2]
      ended = till
    end
  end
end
local left = max(0, min(till - now, length))
local adds, count, rebased = 0, stored, newest - now > w
local last, stamp = rebased and now or newest, now

-- The time of the k-th oldest unit, among those that will be added.
local function nth(k)
  if adds > 0 then
    local before = newest > now and not rebased and redis.call('ZCOUNT', key, from, time) or stored
    if k > before + adds then
      k = k - adds
    elseif k > before then
      return now
    end
  end
  local at = redis.call('ZREVRANGE', key, stored - k, stored - k, 'WITHSCORES')[2] + 0
  return rebased and min(at, now) or at
end

local function reset() return count > 0 and last + w - now or 0 end
local function retry() return count > b and nth(count - b) + w - now or 0 end

local function save(charged)
  if ended ~= 0 and (ended ~= till or till <= now) then
    redis.call('ZREMRANGEBYSCORE', key, '-inf', '(0')
    total = total - 1
  end
  local blocks = ended == till and till > now and 1 or 0
  local old = total - stored - blocks
  if charged and old > 0 then redis.call('ZREMRANGEBYRANK', key, blocks, blocks + min(old, adds + SWEEP) - 1) end
  if charged and rebased then
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', key, '(' .. time, '+inf')) do redis.call('ZADD', key, 'XX', time, member) end
  end
  local name = ARGV[2] .. ':' .. int(item - 1) .. ':'
  for first = 1, adds, PIECE do
    local members = {}
    for i = first, min(adds, first + PIECE - 1) do
      members[#members + 1] = int(stamp)
      members[#members + 1] = name .. i
    end
    redis.call('ZADD', key, unpack(members))
  end
  if till > now and ended ~= till then redis.call('ZADD', key, int(-till), 'block:' .. int(length)) end
  local life = floor(max(reset(), till - now) / 1000) + 2000
  if not charged then life = max(life, redis.call('PTTL', key)) end -- another limit may need it for longer
  redis.call('PEXPIRE', key, life)
end

local function charge(units)
  adds, count, last = units, count + units, max(last, stamp)
  save(true)
end

if op == 'block' or op == 'decide' and left > 0 and a > 0 and till - now > left then
  -- A block that ends further ahead than its length is brought back: the clock stepped back.
  local us = op == 'block' and a or 0
  if us > left then
    left, till, length = us, now + us, us
    save()
  elseif till - now > left then
    till = now + left
    save()
  end
  if op == 'block' then return left end
elseif op == 'back' and c == 0 then
  a = min(a, stored)
  return a > 0 and redis.call('ZREMRANGEBYRANK', key, -a, -1) or 0
elseif op == 'back' then
  if c <= now - w then return 0 end
  -- Units of one time are as good as each other: a refund may have taken those of this caller.
  local members = redis.call('ZRANGEBYSCORE', key, int(c), int(c), 'LIMIT', 0, int(a))
  for i = 1, #members, PIECE do redis.call('ZREM', key, unpack(members, i, min(#members, i + PIECE - 1))) end
  return #members
end
if a < 0 then
  -- A debt: what there is room for is charged, also while the key is blocked.
  -- It was used b µs ago.
  local units = b < w and min(-a, full - count) or 0
  stamp = now - b
  if units > 0 then charge(units) end
  return count, nil, nil, nil, reset()
elseif left > 0 then
  return -1 - count, 1, left, nil, reset(), retry()
elseif count > b then
  local wait = retry()
  if a > 0 and rebased then save(true) end
  return -1 - count, nil, nil, nil, reset(), wait
elseif a > 0 then
  local fit = min(c, floor((b - count) / a) + 1)
  adds = fit * a
  count = count + adds
  local wait = fit < c and retry() or 0
  count = count - adds
  charge(adds)
  if fit < c then return count, 2, fit, nil, reset(), wait end
end
return count, nil, nil, nil, reset()

-- step
rare = true
