"""The embedded API's way to the agents on nodes: where they are, who the API is to them, and what it asks them."""
