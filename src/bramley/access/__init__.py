"""The agent's rule: what a program that is tied to one Node may read and write, and how it gets and loses that.

`rule` says it once, as pure functions; the embedded API asks them. `roles` and `policy` say the same in the words of a real
cluster, `controller` keeps the Roles true there, and `identity` makes and withdraws an agent on either.
"""
