"""A simulated `tart`: one model of its commands and guests, run by real processes or under virtual time.

Entry points for a driver: `command_line.main(words, process)` for a command, `guest.run_guest(plan, process)` for a guest.
Only the standard library is imported, and little of it, so that a call of the shim is cheap.
"""
