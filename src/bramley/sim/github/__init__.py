"""A simulated GitHub: Apps, installations, runners, workflow runs and webhooks, in process under virtual time or as a server.

`github.SimulatedGitHub` is the state and what a scenario does with it; `application.application` serves it over HTTP. Jobs are given
to any runner whose labels match, and not to the one that was registered for them, as GitHub does.
"""
