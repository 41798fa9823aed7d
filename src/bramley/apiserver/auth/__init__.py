"""Authentication and authorization of the embedded API.

`access_control` applies both to a request: `authenticator` finds the user, `authorizer` decides. Nothing here knows a handler,
and nothing logs or returns a token or a key.
"""
