"""The built-in kinds: a table of what is served, their shapes as data, and the few rules that each kind adds."""
