"""The fields of the built-in kinds as data: protobuf numbers, types, and patch strategies."""
