-- Block KEYS[1] for ARGV[2] µs from now; a longer block stays. Replies with the
-- time left.
local until_ = now + tonumber(ARGV[2])
local old = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
if until_ > old then
  redis.call('SET', KEYS[1], int(until_), 'PX',
    int(math.max(1000, math.ceil((until_ - now) / 1000))))
  old = until_
end
return {old - now}
