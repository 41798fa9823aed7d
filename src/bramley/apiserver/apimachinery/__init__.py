"""What every part of the API shares: Status errors, causes, names, metadata, selectors, patches, users and bounds.

Pure functions and values. Nothing here knows a kind, reads a request or opens a file.
"""
