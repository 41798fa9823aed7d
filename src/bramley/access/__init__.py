"""The permissions of agents: what a program that is bound to one Node may read and write, and how they are granted and revoked.

`authorization` decides, as pure functions that the embedded API calls. `roles` and `policy` express the same for a real cluster,
`controller` reconciles the Roles there, and `identity` creates and revokes the identity of an agent on either.
"""
