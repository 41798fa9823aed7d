"""The command line: one file per command, the only code that reads flags and the environment."""
