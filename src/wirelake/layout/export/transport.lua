-- ── segments and datagrams

local function sender_of(pinfo)
    if pinfo.src_port == pinfo.match and pinfo.dst_port ~= pinfo.match then
        return "server"
    end
    return "client"
end

local SHOWN = NAME .. " frames" -- whether the packet has had a frame: a segment may have the ends of two

local function dissect_frame(tvb, pinfo, root)
    local tree = root:add(proto, tvb())
    local r = new_reader(tvb, tree)
    r.sender = sender_of(pinfo)
    local is_read, problem = pcall(read_frame, r)
    if not is_read and problem ~= REFUSED then
        error(problem, 0)
    end
    local name = r.name or "malformed"
    tree:append_text(", " .. name .. " from the " .. r.sender)
    tree:add(f["frame_name"], name):set_generated()
    if pinfo.private[SHOWN] then
        pinfo.cols.info:append(", " .. name)
    else
        pinfo.cols.info = name
        pinfo.private[SHOWN] = "yes"
    end
    return tvb:len()
end

-- A datagram has whole frames, one after the other.
local function dissect_datagram(tvb, pinfo, root)
    local place = 0
    while place < tvb:len() do
        local size = tvb:len() - place >= HEAD_BYTES and frame_size(tvb, pinfo, place) or 0
        if size <= 0 or place + size > tvb:len() then
            root:add(proto, tvb(place)):add_proto_expert_info(malformed, "the datagram ends inside a frame")
            break
        end
        dissect_frame(tvb(place, size):tvb(), pinfo, root)
        place = place + size
    end
    return tvb:len()
end

local udp_port, websocket = Field.new("udp.port"), Field.new("websocket")

function proto.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = NAME
    if udp_port() or websocket() then
        return dissect_datagram(tvb, pinfo, root)
    end
    return dissect_tcp_pdus(tvb, root, HEAD_BYTES, frame_size, dissect_frame)
end
