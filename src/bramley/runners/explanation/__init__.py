"""Explains pools and Pods to people: what they wait for, since when, on which host, and what happens next; pure."""
