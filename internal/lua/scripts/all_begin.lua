-- Nothing is written before everything was decided: what a step would write waits in
-- a queue. Steps read nothing that they have written before.
local server, writes = redis, {}
local reads = {TIME = true, GET = true, MGET = true, EXISTS = true, HMGET = true, ZCOUNT = true, ZREVRANGE = true, ZRANGEBYSCORE = true}
local redis = {call = function(command, ...)
  if reads[command] then return server.call(command, ...) end
  writes[#writes + 1] = {command, ...}
end}
