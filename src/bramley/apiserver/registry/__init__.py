"""The catalog of served resources: built-in kinds and those that CustomResourceDefinitions add.

The strategies of single kinds are in `kinds`; no request is read here.
"""
