"""Commands and probes as POSIX sh: the only place that contains shell.

Scripts use only programs and options that macOS and Linux share, take values as arguments and secrets from standard input, and have
the same text for every value, so that what is checked once holds for all.
"""
