"""Bodies in Kubernetes' protobuf form, read into the JSON values that the rest of the server works on."""
