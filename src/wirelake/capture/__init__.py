"""Read packet captures: files, IP packets, TCP streams, and their frames into the event log."""
