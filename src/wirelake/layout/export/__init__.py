"""Descriptions for other tools: a dissector for Wireshark, and a Kaitai Struct specification."""
