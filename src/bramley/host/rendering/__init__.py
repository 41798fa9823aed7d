"""The vocabulary of host steps as POSIX sh: the only place that knows shell.

Scripts keep to programs and options that macOS and Linux share, take values as arguments and secrets from the line, and are
the same text for every value, so that what is checked once holds for all.
"""
