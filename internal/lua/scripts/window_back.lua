-- Takes n units out of the window of length w in which they were taken, which
-- counts until some time after its start.
local function takeout(key, w, until_, n, at)
  if at == 0 then at = now end
  local start = at - at % w
  if now >= start + until_ then return 0 end
  local began, count = string.match(redis.call('GET', key) or '', '^(%d+):(%d+)$')
  began, count = tonumber(began), tonumber(count)
  if began ~= start then return 0 end
  n = min(n, count)
  redis.call('SET', key, window(start, count - n), 'KEEPTTL')
  return n
end
