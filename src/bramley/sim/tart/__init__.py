"""A simulated `tart`: one model of its commands and guests, run by processes or under virtual time.

Entry points for a driver: `program.main(arguments, surroundings)` for a command line, `guest.live(plan, surroundings)` for a guest.
Only the standard library is imported, and little of it, so that a call of the shim is cheap.
"""
