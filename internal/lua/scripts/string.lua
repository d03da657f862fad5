-- A STRING "at:value:other:birth", and while blocked ":till:length". Other and birth
-- stay texts, since they are mostly copied.

-- STRINGs that were read in one go; false is one that does not exist, or is no
-- STRING: with GET, SET fails for that instead of replacing it.
local texts = {}

local function load(key)
  local v = texts[key]
  if v == nil then v = redis.call('GET', key) end
  s.at, s.value, s.other, s.birth, s.till, s.length, s.changed = 0, 0, '0', '0', 0, 0, false
  if not v then return true end
  local rest
  s.at, s.value, s.other, s.birth, rest = match(v, '^(%d+):(%d+):(%d+):(%d+)(.*)$')
  if not s.at then return false end
  s.at, s.value = s.at + 0, s.value + 0
  if rest ~= '' then
    s.till, s.length = match(rest, '^:(%d+):(%d+)$')
    if not s.till then return false end
    s.till, s.length = s.till + 0, s.length + 0
  end
  -- The clock stepped back.
  if s.at > now and s.birth + 0 > now then s.birth = today() end
  return true
end

-- The time to live is until the key is as if never used, and not blocked, at least 1 s,
-- which is a text because Redis takes longer to print a number. Without a reset it stays
-- as it is.
local function save(key, reset)
  local v = (s.at == now and today() or int(s.at)) .. ':' .. int(s.value) .. ':' .. s.other .. ':' .. s.birth
  if s.till > now then v = v .. ':' .. int(s.till) .. ':' .. int(s.length) end
  local ms = reset and ceil(max(reset, s.till - now) / 1000)
  if ms and ms <= 1000 then ms = '1000' end
  if not ms then
    write('SET', key, v, 'KEEPTTL')
  elseif texts[key] == false then
    write('SET', key, v, 'PX', ms, 'GET')
  else
    write('SET', key, v, 'PX', ms)
  end
  if texts[key] ~= nil then texts[key] = v end
end
