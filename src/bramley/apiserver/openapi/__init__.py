"""OpenAPI v3: what kubectl reads to explain, to validate and to merge. Nothing here is loaded before the first request."""
