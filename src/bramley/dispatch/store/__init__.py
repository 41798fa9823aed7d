"""The durable state of dispatch: deliveries, jobs, claims and executions, in SQLite or PostgreSQL."""
