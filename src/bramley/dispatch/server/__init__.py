"""The HTTP server of dispatch: polls of guests, signals and reports of the pool controller, webhooks, and jobs for people."""
