"""What a manager holds in memory while it brings artifacts to many Macs at once, and how fast it is beside `scp`."""
