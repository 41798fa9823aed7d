"""Identity and rights of the embedded API: who asks, and whether they may.

`authenticator` finds the user, `authorizer` decides; both are asked once per request by `api`. The handlers of reviews and
token requests stand here too. Nothing below logs or returns a token or a key.
"""
