"""One HTTP request and its response: uvicorn's protocol, the request's RequestInfo, and what handlers get and return.

Nothing here authorizes a request or knows what a resource means.
"""
