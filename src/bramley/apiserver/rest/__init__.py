"""The generic REST: reads, writes, deletions and watches of any served resource, over the store."""
