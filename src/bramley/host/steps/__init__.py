"""The steps that make a Mac a Node, one file each; `host.sequence` has their order."""
