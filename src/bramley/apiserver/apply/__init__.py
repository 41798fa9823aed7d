"""Server-side apply: who owns which fields, and how an applied configuration changes an object."""
