-- What every process asks for, by key. KEYS: the sums over all (HASH), until when each process
-- lives without another report (SORTED SET), what this one has in the sums (HASH). The field of no name is the
-- era of the sums, in both hashes. Redis may lose one of the three keys, where it evicts keys: what is left is
-- of no use then, and a new era begins, in which all processes report all again.
-- ARGV: now, the process as a number, its time to live in µs, less than longest, then fields with the rate
-- at which this process asks for them, as integers; a rate of 0 takes the field out.
-- Replies with how many processes live, the number of one that is dead or 0, and the sum
-- of each field.
local sums, processes, mine = KEYS[1], KEYS[2], KEYS[3]
local life = tonumber(ARGV[3])
local hour, longest = '3600000', 900000000

local reply = {0, 0}
local fields = {''}
for a = 4, #ARGV, 2 do fields[#fields + 1] = ARGV[a] end
local sum, own = redis.call('HMGET', sums, unpack(fields)), redis.call('HMGET', mine, unpack(fields))
local era, begun = sum[1], own[1]
local lost = not era or redis.call('EXISTS', processes) == 0 or not begun and redis.call('ZSCORE', processes, ARGV[2])
-- The first write needs memory: after one that needs none Redis lets a script write without any, and a report
-- shows that it accepts charges.
redis.call('ZADD', processes, int(now + life), ARGV[2])
if lost then
  redis.call('DEL', sums)
  era, sum = int(now + ARGV[2]), {}
end
if begun ~= era then
  redis.call('DEL', mine)
  own = {}
end
local put, keep, out, drop = {'', era}, {'', era}, {}, {}
for i = 2, #fields do
  local field, rate, old = fields[i], tonumber(ARGV[1 + 2 * i]), tonumber(own[i] or 0) or 0
  local all = math.max(rate, (tonumber(sum[i] or 0) or 0) - old + rate)
  if rate > 0 then
    keep[#keep + 1] = field
    keep[#keep + 1] = int(rate)
  elseif own[i] then
    drop[#drop + 1] = field
  end
  if all > 0 then
    put[#put + 1] = field
    put[#put + 1] = int(all)
  elseif sum[i] then
    out[#out + 1] = field
  end
  reply[#reply + 1] = all
end
redis.call('HSET', sums, unpack(put))
redis.call('HSET', mine, unpack(keep))
if #out > 0 then redis.call('HDEL', sums, unpack(out)) end
if #drop > 0 then redis.call('HDEL', mine, unpack(drop)) end
-- One that lives for longer than any can means that the clock has stepped back.
for _, other in ipairs(redis.call('ZRANGEBYSCORE', processes, '(' .. int(now + longest), '+inf', 'LIMIT', '0', '1000')) do
  redis.call('ZADD', processes, int(now + life), other)
end
local dead = redis.call('ZRANGEBYSCORE', processes, '-inf', '(' .. int(now), 'LIMIT', '0', '1')
if dead[1] then reply[2] = tonumber(dead[1]) end
redis.call('PEXPIRE', processes, hour)
redis.call('PEXPIRE', mine, hour)
redis.call('PEXPIRE', sums, hour)
reply[1] = redis.call('ZCOUNT', processes, int(now), '+inf')
return reply
