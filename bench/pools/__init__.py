"""The pool controller: how fast it creates Pods, what it costs at rest, and how many writes a roll takes."""
