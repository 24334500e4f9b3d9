"""comet: notifications for phones, with topics, acknowledgements and an offline list."""
