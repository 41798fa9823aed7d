"""The fields of the built-in kinds as data: their numbers on the wire, their types, and how patches merge them."""
