"""Decoding of Kubernetes' protobuf bodies to JSON values."""
