"""Dispatch: how soon an idle VM has its job, what idle polls cost, and the rates of the queue."""
