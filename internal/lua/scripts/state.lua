-- The key of every algorithm but the log holds the text "time:birth:num:den:x:y", and while
-- it is blocked "time:birth:till:length:num:den:x:y". Time and birth have 16 digits
-- each, so that the limit always begins at the same place; x is the count of the
-- previous window, or the burst of a bucket; y the count of this one,
-- or what a bucket lacks. See algo.State.
local floor, ceil, max, min, format = math.floor, math.ceil, math.max, math.min, string.format
local t, birth, p, q, x, y, till, length = 0, 0, 0, 0, 0, 0, 0, 0
if v then
  t, birth, till, length, p, q, x, y = string.match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not t then
    till, length = 0, 0
    t, birth, p, q, x, y = string.match(v, '^(%d+):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  end
  if not t then return 0, 3, 0 end
  t, birth, p, q, x, y, till, length = t + 0, birth + 0, p + 0, q + 0, x + 0, y + 0, till + 0, length + 0
end
local left = max(0, min(till - now, length))

-- The time to live ends one to two seconds after the key is fully reset and not blocked, so
-- that not every write changes it. Without reset it stays as it is.
local function save(reset)
  if t > 0 and birth == 0 then birth = now end
  local text = format('%016.0f:%016.0f', t, birth)
  if till > now then text = text .. format(':%.0f:%.0f', till, length) end
  text = text .. format(':%.0f:%.0f:%.0f:%.0f', p, q, x, y)
  if not reset then
    redis.call('SET', key, text, 'KEEPTTL')
  else
    redis.call('SET', key, text, 'PX', floor(max(reset, till - now) / 1000) + 2000)
  end
end

-- Blocks the key for us µs from now; a longer block stays. Returns the time left.
local function block(us, reset)
  if us > left then
    left, till, length = us, now + us, us
  elseif till - now > left then
    till = now + left
  else
    return left
  end
  -- The limit that charged the key may need it for longer than this one.
  save(max(reset, redis.call('PTTL', key) * 1000 - 2000000))
  return left
end
