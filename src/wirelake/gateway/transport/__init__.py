"""Listen for peers, limit what is read from them, and write what is durable."""
