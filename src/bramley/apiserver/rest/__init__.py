"""The generic REST handlers: reads, writes, deletions and watches of any served resource."""
