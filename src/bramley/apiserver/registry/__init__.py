"""The catalog of served resources: built-in kinds and those that CustomResourceDefinitions add.

It says what is served and by which rules; the rules of single kinds are in `kinds`, and no request is read here.
"""
