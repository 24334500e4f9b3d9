-- ── reading fields: the same for every protocol

local BIG, LITTLE = false, true
local REFUSED = {} -- raised where a frame is refused; the expert info says why

-- A tree that shows nothing, to find out first whether bytes can be read.
local SILENT = {}
for _, name in ipairs({ "add", "add_le", "add_packet_field", "add_proto_expert_info" }) do
    SILENT[name] = function()
        return SILENT
    end
end
for _, name in ipairs({ "append_text", "set_text", "set_len", "set_generated" }) do
    SILENT[name] = SILENT.add
end

-- Reads the fields of one frame, one after the other. Each is added to `tree`.
local Reader = {}
Reader.__index = Reader

local function new_reader(tvb, tree)
    return setmetatable({ tvb = tvb, tree = tree, place = 0, stop = tvb:len(), values = {} }, Reader)
end

local function uint_at(tvb, place, size, little)
    local range = tvb(place, size)
    return little and range:le_uint() or range:uint()
end

local function any_bit(value, bits)
    if type(value) == "number" then
        return bit.band(value, bits) ~= 0
    end
    return value:band(UInt64(bits)) ~= UInt64(0)
end

local function is_utf8(text)
    local place, size = 1, #text
    while place <= size do
        local first = text:byte(place)
        local more, least = 0, 0
        if first >= 0xF0 and first <= 0xF4 then
            more, least = 3, 0x10000
        elseif first >= 0xE0 and first < 0xF0 then
            more, least = 2, 0x800
        elseif first >= 0xC2 and first < 0xE0 then
            more, least = 1, 0x80
        elseif first >= 0x80 then
            return false
        end
        local code = more == 0 and first or first % 2 ^ (6 - more)
        for index = 1, more do
            local byte = text:byte(place + index)
            if byte == nil or byte < 0x80 or byte > 0xBF then
                return false
            end
            code = code * 64 + byte % 64
        end
        if code < least or code > 0x10FFFF or (code >= 0xD800 and code <= 0xDFFF) then
            return false
        end
        place = place + 1 + more
    end
    return true
end

-- A CRC of up to 32 bits over the bytes of a string.
local function crc(data, width, polynomial, initial, is_reflected, final)
    local top, value = 2 ^ (width - 1), initial
    for index = 1, #data do
        if is_reflected then
            value = bit.bxor(value, data:byte(index))
        else
            value = bit.bxor(value, bit.lshift(data:byte(index), width - 8))
        end
        for _ = 1, 8 do
            if is_reflected then
                local is_odd = value % 2 == 1
                value = bit.rshift(value, 1)
                value = is_odd and bit.bxor(value, polynomial) or value
            else
                local is_high = bit.band(value, top) ~= 0
                value = bit.band(bit.lshift(value, 1), 2 ^ width - 1)
                value = is_high and bit.bxor(value, polynomial) or value
            end
        end
    end
    return bit.bxor(value, final) % 2 ^ width
end

function Reader:refuse(text, item)
    local target = item or self.tree
    target:add_proto_expert_info(malformed, text)
    self.reason = text
    error(REFUSED, 0)
end

function Reader:left()
    return self.stop - self.place
end

function Reader:take(size, key)
    if self:left() < size then
        self:refuse(string.format("%s needs %d bytes, %d are left", key, size, self:left()))
    end
    local range = self.tvb(self.place, size)
    self.place = self.place + size
    return range
end

-- Marks of a field: `const` (its bytes in hex), `known` (a table of the values it may have), `most` (the largest),
-- `least` (the smallest), `reserved` (bits that must be zero), `bits` (fields of its bits), `scale`, `is_secret`.
function Reader:number(key, size, little, marks)
    marks = marks or {}
    local range = self:take(size, key)
    local value
    if size > 4 then
        value = little and range:le_uint64() or range:uint64()
    else
        value = little and range:le_uint() or range:uint()
    end
    local item
    if marks.is_secret then
        item = self.tree:add(f[key], range, size > 4 and UInt64(0) or 0):append_text(" (secret)")
    elseif little then
        item = self.tree:add_le(f[key], range)
    else
        item = self.tree:add(f[key], range)
    end
    for _, name in ipairs(marks.bits or {}) do
        if little then
            item:add_le(f[name], range)
        else
            item:add(f[name], range)
        end
    end
    if marks.scale then
        local factor, digits, unit = table.unpack(marks.scale)
        local signed = little and range:le_int() or range:int()
        item:append_text(string.format(" (%." .. digits .. "f %s)", (marks.is_signed and signed or value) * factor, unit))
    end
    self:check(key, value, range, item, marks)
    return value, item
end

function Reader:check(key, value, range, item, marks)
    if marks.const and range:bytes():tohex(true) ~= marks.const then
        self:refuse(marks.text or string.format("%s is %s, not %s", key, range:bytes():tohex(true), marks.const), item)
    end
    if marks.reserved and any_bit(value, marks.reserved) then
        self:refuse(string.format("%s: the bits 0x%x must be zero", key, marks.reserved), item)
    end
    if marks.known and not marks.known[value] then
        self:refuse(string.format("%s %s has no meaning", key, tostring(value)), item)
    end
    if (marks.most and value > marks.most) or (marks.least and value < marks.least) then
        local text = marks.text or string.format("from %s to %s", marks.least or 0, marks.most or "any")
        self:refuse(string.format("%s is %s: %s", key, tostring(value), text), item)
    end
end

function Reader:bytes(key, size, marks)
    marks = marks or {}
    local range = self:take(size, key)
    if marks.is_secret then
        return self.tree:add(f[key], range, string.rep("\0", size)):append_text(" (secret)")
    end
    local item = self.tree:add(f[key], range)
    self:check(key, nil, range, item, marks)
    return item
end

function Reader:text(key, size, marks)
    marks = marks or {}
    local range = self:take(size, key)
    if marks.is_secret then
        self.tree:add(f[key], range, string.rep("*", size)):append_text(" (secret)")
    else
        self.tree:add_packet_field(f[key], range, ENC_UTF_8)
    end
    if size > 0 and not is_utf8(range:raw()) then
        self:refuse(key .. ": text is not UTF-8")
    end
end

-- Bytes or text after their size.
function Reader:prefixed(kind, key, prefix, little, marks)
    local size = self:number(key .. ".size", prefix, little)
    self[kind](self, key, size, marks)
end

-- Seven bits a byte, the lowest first; in zigzag if it has a sign.
function Reader:varint(key, bits, is_signed, marks)
    local low, high, size = 0, 0, 0
    local byte
    repeat
        if self:left() <= size then
            self:refuse(key .. ": the bytes end inside a number")
        end
        byte = self.tvb(self.place + size, 1):uint()
        if size == 9 and byte > 1 then
            self:refuse(key .. ": a number of more than 64 bits")
        end
        local place, group = 7 * size, byte % 0x80
        if place < 28 then
            low = low + group * 2 ^ place
        elseif place == 28 then
            low = low + group % 16 * 2 ^ 28
            high = math.floor(group / 16)
        else
            high = high + group * 2 ^ (place - 32)
        end
        size = size + 1
    until byte < 0x80
    local range = self:take(size, key)
    local value = UInt64.new(low, high)
    if is_signed then
        local half = value:rshift(1)
        half = low % 2 == 1 and half:bnot() or half
        value = Int64.new(half:lower(), half:higher())
    end
    local item = self.tree:add(f[key], range, value)
    if bits < 64 and high ~= 0 then
        self:refuse(string.format("%s %s has more than %d bits", key, tostring(value), bits), item)
    end
    local number = value:tonumber()
    self:check(key, number, range, item, marks or {})
    return number, item
end

-- Bytes or text after their size, which is a varint.
function Reader:sized_by_varint(kind, key, is_signed, marks)
    local size, item = self:varint(key .. ".size", 32, is_signed)
    if size < 0 then
        self:refuse(string.format("%s: a length of %d", key, size), item)
    end
    self[kind](self, key, size, marks)
end

-- A number after its size. One of a size that is neither in `integers` nor in `floats` stays bytes.
function Reader:sized_number(key, little, integers, floats, marks)
    local size = self:number(key .. ".size", 1, BIG)
    if integers[size] then
        self:number(key, size, little, marks)
    elseif floats[size] then
        local range = self:take(size, key)
        local field = f[key .. (size == 4 and ".f32" or ".f64")]
        if little then
            self.tree:add_le(field, range)
        else
            self.tree:add(field, range)
        end
    else
        self:bytes(key .. ".bytes", size, marks)
    end
end

-- Another frame inside bytes, which fills what is left. If it is malformed, its bytes are shown, and why.
function Reader:content(key, label, read)
    local outer, start = self.tree, self.place
    self.tree = SILENT
    local is_read, problem = pcall(function()
        read(self, {})
        if self:left() > 0 then
            self:refuse(string.format("%d bytes too many", self:left()))
        end
    end)
    self.tree, self.place = outer, start
    if is_read then
        self:group(key .. ".content", label, read)
    elseif problem == REFUSED then
        local item = self:bytes(key, self:left())
        item:add_proto_expert_info(malformed, string.format("not readable as a %s: %s", label, self.reason))
    else
        error(problem, 0)
    end
end

-- Items after their count.
function Reader:list(key, prefix, little, read_item)
    local count = self:number(key .. ".count", prefix, little)
    for index = 0, count - 1 do
        read_item(index)
    end
end

-- The fields of a part, under a heading.
function Reader:group(key, label, read)
    local outer, start = self.tree, self.place
    self.tree = outer:add(f[key], self.tvb(start, 0)):set_text(label)
    read(self, {})
    self.tree:set_len(self.place - start)
    self.tree = outer
end

-- One byte up to 127; above, two: 0x80 | (length & 0x7F), length >> 7.
function Reader:short_length(key, marks)
    local size = self:left() > 0 and self.tvb(self.place, 1):uint() > 0x7F and 2 or 1
    local range = self:take(size, key)
    local value = range(0, 1):uint()
    if size == 2 then
        value = value % 0x80 + range(1, 1):uint() * 0x80
    end
    local item = self.tree:add(f[key], range, value)
    if size == 2 and value < 0x80 then
        self:refuse(string.format("%s %d in two bytes: one is enough", key, value), item)
    end
    self:check(key, value, range, item, marks or {})
    return value, item
end

-- Refuse a frame of another size than its length says.
function Reader:check_size(key, whole)
    if whole ~= self.tvb:len() then
        self:refuse(string.format("%s says that the frame has %d bytes, it has %d", key, whole, self.tvb:len()))
    end
end

-- Find the frame with this opcode.
function Reader:choose(bodies, key, opcode, item)
    local body = bodies[opcode]
    if body == nil then
        self:refuse(string.format("%s %s is not one that a %s sends", key, tostring(opcode), self.sender), item)
    end
    if item then
        item:append_text(" (" .. body.name .. ")")
    end
    self.expected = body.expected
    self.name = body.name
    self.read_body = body.read
end

-- Refuse a value that frames of this kind do not have.
function Reader:expect(key, value)
    if self.expected and value ~= self.expected[key] then
        self:refuse(string.format("%s %s is not that of a %s", key, tostring(value), self.name))
    end
end

-- Read the body, up to the bytes that belong to the fields after it.
function Reader:body(tail_size)
    if self.read_body == nil then
        self:refuse(string.format("no frame that a %s sends", self.sender))
    end
    if self:left() < tail_size then
        self:refuse(string.format("the end of the frame needs %d bytes, %d are left", tail_size, self:left()))
    end
    self.stop = self.stop - tail_size
    self.read_body(self, self.values)
    if self:left() > 0 then
        self:refuse(string.format("%d bytes too many", self:left()))
    end
    self.stop = self.stop + tail_size
end

-- Compare the checksum with the bytes it covers: from `first` on, up to `after` bytes before the end of the frame.
function Reader:verify(key, range, little, compute, first, after)
    local stored = little and range:le_uint() or range:uint()
    local size = self.tvb:len() - after - first
    local computed = compute(size > 0 and self.tvb(first, size):raw() or "")
    self.verdict = stored == computed and 1 or 0
    if stored ~= computed then
        local text = string.format("%s is 0x%x, the bytes before it give 0x%x", key, stored, computed)
        self.tree:add_proto_expert_info(bad_checksum, text)
    end
end

function Reader:checksum(key, size, little)
    local _, item = self:number(key, size, little)
    item:add(f[key .. ".status"], self.verdict or 2):set_generated()
end
