"""The shared folders of host and guest: variables, tokens, exit codes and logs."""
