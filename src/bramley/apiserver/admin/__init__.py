"""What is for administrators only: backups, archives of a data folder, key rotation and the admin kubeconfig.

Every endpoint is served through `gate`, which checks for `system:masters` and writes the audit log.
"""
