-- Takes n units out of the window of length w in which they were taken, which
-- counts until some time after its start.
local function takeout(key, w, until_, n, taken)
  local start = taken - taken % w
  if now >= start + until_ then return 0 end
  local at, count = string.match(redis.call('GET', key) or '', '^(%d+):(%d+)$')
  at, count = tonumber(at), tonumber(count)
  if at ~= start then return 0 end
  n = min(n, count)
  redis.call('SET', key, window(at, count - n), 'KEEPTTL')
  return n
end
