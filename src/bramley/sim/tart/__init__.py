"""A program that answers like `tart`: one model, a process and an in-process face."""
