"""A simulated Scaleway: rented Macs, SSH keys and private networks, over HTTP and in process.

`scaleway` is the account with its servers, `calls` are the calls of the API, `application` serves them, `macs` are the simulated Macs behind the
servers under virtual time and `ssh_macs` those behind SSH servers.
"""
